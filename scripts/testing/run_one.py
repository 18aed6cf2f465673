"""Run the tests of one file, in seconds.

Usage: python scripts/testing/run_one.py dpkit/losses.py

The tests of ``dpkit/buckets/rounds.py`` are its examples, ``test_rounds.py``
and ``test_buckets.py``. Where no test has such a name, they are the files of
tests that name the module. A file of tests is run itself, and so is a chapter.
There is one process: to start workers, and to import torch in each of them,
takes longer than most files.
"""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
FOLDERS = (
    *("tests/sim", "tests/kit", "tests/runs", "tests/book", "tests/seeds"),
    *("tests/site", "tests/running"),
)
NBVAL = (
    "--nbval", "--nbval-current-env", "--nbval-kernel-name=python3",
    "--nbval-kernel-startup-timeout=1200",
)  # fmt: skip
MARKS = "not cuda and not weekly"
LEAN = ("-p", "no:xdist", "-p", "no:cacheprovider")


def names_module(text: str, module: str) -> bool:
    """Return whether a source names a module, whole or imported."""
    folder, _, name = module.rpartition(".")
    whole = re.escape(module) + r"\b"
    imported = rf"from {re.escape(folder)} import [^\n]*\b{name}\b"
    return bool(re.search(f"{whole}|{imported}", text))


def imported_from(file: Path) -> Path:
    """Return the folder from which tests import a file: one that pytest has.

    For ``scripts/pages/serve.py`` it is ``scripts/pages``. A script there has
    little to do with the others, and nothing with a test of pages.

    Args:
        file: Its path from the root of the repository.
    """
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    folders = settings["tool"]["pytest"]["ini_options"]["pythonpath"]
    return next(path for path in file.parents if str(path) in folders)


def tests_of(file: Path) -> list[Path]:
    """Return the files that test a file of the library, the book or scripts.

    Args:
        file: Its path from the root of the repository.

    Returns:
        Those that have its name or that of its folder; if there are none,
        those that name it.
    """
    tests = [p for f in FOLDERS for p in sorted((ROOT / f).rglob("test_*.py"))]
    inside = file.relative_to(imported_from(file))
    folder = f"test_{inside.parent.name}"
    named = [
        path
        for path in tests
        if path.stem in (f"test_{file.stem}", folder)
        or path.stem.startswith(f"{folder}_")
    ]
    if named:
        return named
    module = ".".join(inside.with_suffix("").parts).removesuffix(".__init__")
    return [p for p in tests if names_module(p.read_text("utf-8"), module)]


def options(file: Path) -> list[str]:
    """Return what pytest is given to run the tests of a file."""
    if file.suffix == ".ipynb":
        return [*LEAN, *NBVAL, str(file)]
    lean = [*LEAN, "-p", "no:nbval"]
    if file.parts[0] == "tests":
        return [*lean, str(file)]
    found = map(str, tests_of(file))
    examples = ["--doctest-modules", str(file)]
    return [*lean, *(examples if file.parts[0] != "scripts" else []), *found]


def has_files(options: list[str]) -> bool:
    """Return whether pytest is given a file; without one it runs all."""
    return any(word.endswith((".py", ".ipynb")) for word in options)


def main(name: str) -> int:
    """Run the tests of the file; return the exit status of pytest."""
    path = Path(name).resolve()
    if not (path.is_file() and path.is_relative_to(ROOT)):
        print(f"no such file in the repository (FILE: {name!r})")
        return 2
    chosen = options(path.relative_to(ROOT))
    if not has_files(chosen):
        print(f"no test names this file (FILE: {name!r})")
        return 2
    print("pytest", *(word for word in chosen if "/" in word))
    command = [sys.executable, "-m", "pytest", "-q", "-m", MARKS, *chosen]
    return subprocess.run(command, cwd=ROOT, env=os.environ).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
