"""Run a long experiment again, and record it in book/_data.

Usage: python scripts/record.py NAME [ARGUMENT ...]

The name is that of a module in scripts/recorders, such as headline.
"""

import sys
from importlib import import_module


def main(name: str, *arguments: str) -> None:
    """Run the program of this name."""
    import_module(f"recorders.{name}").main(*arguments)


if __name__ == "__main__":
    main(*sys.argv[1:])
