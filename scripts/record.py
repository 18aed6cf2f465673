"""Run a long experiment again, and record it in book/_data.

Usage: python scripts/record.py NAME [ARGUMENT ...]

The name is that of a module in scripts/recorders, such as headline, which
tells what its arguments are.
"""

import sys
from importlib import import_module
from pathlib import Path


def known() -> list[str]:
    """Return the names of the programs: the modules that have a ``main``."""
    paths = (Path(__file__).parent / "recorders").glob("*.py")
    return sorted(
        path.stem for path in paths if "\ndef main(" in path.read_text("utf-8")
    )


def main(*arguments: str) -> None:
    """Run the program that the first argument names."""
    name, *others = arguments or [""]
    if name not in known():
        sys.exit(f"unknown recorder ({name!r}, known: {', '.join(known())})")
    import_module(f"recorders.{name}").main(*others)


if __name__ == "__main__":
    main(*sys.argv[1:])
