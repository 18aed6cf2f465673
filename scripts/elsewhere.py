"""Run the listings of other frameworks, and compare them with the records.

    python scripts/elsewhere.py [FRAMEWORK …] [--renew] [--strict]

Each framework has its own environment, ``.venv-<framework>``, which is made
first. The end is 0 if all results are those of the records, and 1 if any
is another. A framework that cannot be installed is named; that is an error
with ``--strict`` alone. ``--renew`` stores the results as the new records.
"""

import argparse
import math
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from recorders.provenance import provenance

from dpbook.elsewhere.results import (
    FRAMEWORKS,
    Results,
    listing,
    read,
    record,
    run,
)

ROOT = Path(__file__).parent.parent
BOOK = ROOT / "book"
DIFFERENT = "different from the record"
NEAR = 1e-10  # no parameter of two runs is further apart


def main() -> None:
    """Run the frameworks that are asked for; end as the docstring says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("frameworks", nargs="*", choices=[*FRAMEWORKS, []])
    parser.add_argument("--renew", action="store_true")
    parser.add_argument("--strict", action="store_true")
    options = parser.parse_args()
    ends = [
        end_of(framework, options.renew)
        for framework in options.frameworks or FRAMEWORKS
    ]
    lacking = options.strict and "not installed" in ends
    sys.exit(1 if lacking or DIFFERENT in ends else 0)


def end_of(framework: str, renew: bool) -> str:
    """Run a framework, and say how that ended."""
    began = time.monotonic()
    python, why = environment(framework)
    if python is None:
        print(f"{framework}: not installed ({why})", flush=True)
        return "not installed"
    found = run(framework, BOOK, str(python))
    if renew:
        command = f"make elsewhere FRAMEWORK={framework} RENEW=1"
        record(found, BOOK, provenance(command))
    differences = list(compare(found))
    end = DIFFERENT if differences else "as recorded"
    seconds = time.monotonic() - began
    print(f"{framework}: {end}, {seconds:.0f} s", flush=True)
    for line in differences:
        print(f"  {line}")
    return end


def environment(framework: str) -> tuple[Path | None, str]:
    """Make the environment of a framework; return its Python, or why not."""
    folder = ROOT / f".venv-{framework}"
    python = folder / "bin" / "python"
    ready = folder / "bin" / "ready"
    pins = BOOK / "elsewhere" / f"{framework}.txt"
    if ready.exists() and ready.stat().st_mtime > pins.stat().st_mtime:
        return python, ""
    base = sys.executable
    if framework == "mxnet" and sys.version_info[:2] != (3, 11):
        base = shutil.which("python3.11") or ""
        if not base:
            return None, "MXNet 1.9.1 needs Python 3.11"
    for command in (
        [base, "-m", "venv", "--clear", folder],
        [python, "-m", "pip", "install", "-q", "-r", pins],
    ):
        made = subprocess.run(command, capture_output=True, text=True)
        if made.returncode:
            return None, (made.stderr.strip().splitlines() or ["?"])[-1]
    ready.touch()
    return python, ""


def compare(found: Results) -> list[str]:
    """Return in what results differ from the record."""
    expected, of_listing = read(found.framework, BOOK)
    lines = []
    if of_listing != listing(found.framework, BOOK):
        lines.append("the record is of another listing (RENEW=1 renews it)")
    lines += [
        f"{way}: parameters are up to {distance:.1e} apart"
        for way, params in expected.params.items()
        if not (distance := far(found.params.get(way), params)) < NEAR
    ]
    return lines + differing("facts", expected.facts, found.facts)


def far(found: Any, expected: Any) -> float:
    """Return the largest distance of two arrays; infinite without one."""
    return math.inf if found is None else float(np.abs(found - expected).max())


def differing(name: str, expected: Any, found: Any) -> list[str]:
    """Return in what two nested values differ, by their names."""
    if isinstance(expected, dict) and isinstance(found, dict):
        return [
            line
            for key in sorted(expected.keys() | found.keys())
            for line in differing(
                f"{name}, {key}", expected.get(key), found.get(key)
            )
        ]
    if isinstance(expected, list) and isinstance(found, list):
        pairs = dict(enumerate(expected)), dict(enumerate(found))
        return differing(name, *pairs)
    if isinstance(expected, float) and isinstance(found, float):
        same = math.isclose(expected, found, rel_tol=1e-9, abs_tol=1e-12)
    else:
        same = expected == found
    return [] if same else [f"{name}: {expected!r} recorded, {found!r} found"]


if __name__ == "__main__":
    main()
