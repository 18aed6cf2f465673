"""Run all there is to run, part by part; go on where it was stopped.

Usage: python scripts/testing/run_parts.py [NAME ...]

The parts are listed in ``parts.toml``. One that has passed on these files is
not run again; ``_build/parts`` keeps which have, and what each printed. With
names, these parts run alone, whether or not they have passed.
"""

import hashlib
import json
import subprocess
import sys
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

ROOT = Path(__file__).parent.parent.parent
TABLE = Path(__file__).with_name("parts.toml")
KEPT = ROOT / "_build" / "parts"


@dataclass(frozen=True)
class Part:
    """A part of all tests and checks.

    Attributes:
        name: What it is called.
        run: Its command, for a shell in the root of the repository.
        finds: The faults that it is there for.
    """

    name: str
    run: str
    finds: str


def read_parts(table: Path = TABLE) -> list[Part]:
    """Read the table of the parts."""
    listed = tomllib.loads(table.read_text(encoding="utf-8"))["part"]
    return [Part(**row) for row in listed]


def choose(
    parts: list[Part], names: list[str], passed: set[str]
) -> list[Part]:
    """Return the parts to run: those that are named, or that have not passed.

    Raises:
        ValueError: a name is of no part.
    """
    unknown = set(names) - {part.name for part in parts}
    if unknown:
        known = ", ".join(part.name for part in parts)
        raise ValueError(
            f"no such part (named: {', '.join(sorted(unknown))}, "
            f"known: {known})"
        )
    if names:
        return [part for part in parts if part.name in names]
    return [part for part in parts if part.name not in passed]


def files_now() -> str:
    """Return what tells these files from others: a digest of the work tree."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(
        [*command, "-z"], cwd=ROOT, capture_output=True, check=True
    )
    digest = hashlib.sha256()
    for name in sorted(filter(None, listed.stdout.decode().split("\0"))):
        path = ROOT / name
        if path.is_file():
            digest.update(name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def run(part: Part, folder: Path) -> bool:
    """Run a part; write what it prints, and return whether it has passed."""
    with (folder / f"{part.name}.txt").open("wb") as file:
        done = subprocess.run(
            ["bash", "-c", part.run],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    return done.returncode == 0


def flaky_in(part: Part, folder: Path) -> list[str]:
    """Return the lines with which runs of a part have named a flaky test."""
    text = (folder / f"{part.name}.txt").read_text("utf-8", errors="replace")
    return [line for line in text.splitlines() if line.startswith("flaky: ")]


def main(names: list[str]) -> int:
    """Run parts and say how each ended; return whether all have passed."""
    folder = KEPT / files_now()
    folder.mkdir(parents=True, exist_ok=True)
    record = folder / "passed.json"
    passed = set(json.loads(record.read_text()) if record.exists() else [])
    try:
        chosen = choose(read_parts(), names, passed)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    failed = []
    for part in tqdm(chosen, disable=None):
        start = time.monotonic()
        if run(part, folder):
            passed.add(part.name)
            record.write_text(json.dumps(sorted(passed)))
        else:
            failed.append(part.name)
        how = "FAILED" if part.name in failed else "passed"
        minutes = (time.monotonic() - start) / 60
        tqdm.write(f"{part.name}: {how}, {minutes:.1f} min ({part.run})")
        for line in flaky_in(part, folder):
            tqdm.write(f"{part.name}: {line}")
    shown = folder.relative_to(ROOT)
    print(f"parts passed: {len(passed)}, failed: {failed}; printed: {shown}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
