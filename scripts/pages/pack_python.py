"""Pack Python for the pages: `_build/live/python.js` and `theory.js`.

The second has what a page runs: what the library says without a tensor, and
the figures and exercises of the book. Node does it, by `pyodide/pack.mjs`.
Pyodide comes from npm once, by version and hash; where that cannot be had, the
pages do without.
"""

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path

from filelock import FileLock

ROOT = Path(__file__).resolve().parent.parent.parent
HERE = Path(__file__).resolve().parent / "pyodide"
PACKED = ROOT / "_build" / "live"
NAMES = ("python.js", "theory.js")
# What pages run; all of it needs Python's standard library alone.
PACKAGES = (
    *("dpkit/lazy.py", "dpkit/least_squares.py", "dpkit/tables.py"),
    *("dpkit/units.py", "dpkit/plans", "dpkit/schedules"),
    *("dpkit/sim/clock", "dpkit/sim/hardware", "dpkit/sim/timeline"),
    "book/dpbook/exercises",
    "book/dpbook/explore",
    "book/dpbook/formulas",
    "book/dpbook/planner",
    "book/dpbook/plans",
)
MARK = "made-from.txt"  # the hash of what the two were made from


def hash_of_sources() -> str:
    """Return a hash of all files that what is packed depends on."""
    found = hashlib.sha256()
    files = [
        path
        for package in PACKAGES
        for path in (ROOT / package, *(ROOT / package).rglob("*"))
        if "__pycache__" not in path.parts and path.is_file()
    ]
    for path in sorted([*files, *HERE.glob("*.*")]):
        found.update(f"{path.name} {path.stat().st_size}\n".encode())
        found.update(path.read_bytes())
    return found.hexdigest()


def run(*command: object) -> str:
    """Run a command in the folder of Pyodide; return why it failed."""
    arguments = list(map(str, command))
    try:
        done = subprocess.run(
            arguments, cwd=HERE, capture_output=True, text=True
        )
    except FileNotFoundError:
        return f"there is no {arguments[0]}"
    lines = done.stderr.strip().splitlines() or ["no message"]
    return f"{arguments[0]} failed: {lines[-1]}" if done.returncode else ""


def install() -> str:
    """Get Pyodide from npm, once; return why that was not possible."""
    # npm writes this file itself, when it has installed.
    there = HERE / "node_modules" / ".package-lock.json"
    lock = HERE / "package-lock.json"
    if there.exists() and there.stat().st_mtime >= lock.stat().st_mtime:
        return ""
    why = run("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
    if not why:
        os.utime(there)
    return why


def pack() -> Path | None:
    """Pack Python if a source has changed; return the folder, or None."""
    PACKED.parent.mkdir(exist_ok=True)
    with FileLock(PACKED.with_suffix(".lock")):
        mark = PACKED / MARK
        wanted = hash_of_sources()
        if mark.exists() and mark.read_text(encoding="utf-8") == wanted:
            return PACKED
        shutil.rmtree(PACKED, ignore_errors=True)
        why = install() or run("node", "pack.mjs", ROOT, PACKED, *PACKAGES)
        if why:
            print(f"live figures go without Python ({why}): only frames")
            return None
        mark.write_text(wanted, encoding="utf-8")
        return PACKED


def put_into_site(folder: Path | None, site: Path) -> None:
    """Put what was packed next to the engine, and tell it how large it is.

    Args:
        folder: What was packed; None if that was not possible. The engine
            then offers no Python.
        site: The built site.
    """
    live = site / "_static" / "live"
    for name in NAMES:
        (live / name).unlink(missing_ok=True)
        if folder:
            shutil.copyfile(folder / name, live / name)
    script = "dpkitPython.available = false;\n"
    if folder:
        sizes = {name: (live / name).stat().st_size for name in NAMES}
        script = f"dpkitPython.sizes = {json.dumps(sizes)};\n"
    with (live / "engine.js").open("a", encoding="utf-8") as file:
        file.write(script)
