"""Print which of dpkit's requirements this Python does not have.

Usage: /path/to/an/environment/bin/python scripts/lacking.py

For an environment that was there before (`make … ENV=…`), into which nothing
is installed: what is lacking there fails later, in words that may not say why.
"""

import re
import sys
import tomllib
from importlib import metadata
from pathlib import Path

PROJECT = Path(__file__).parent.parent / "pyproject.toml"
NAME = re.compile(r"[\w.-]+")


def required(project: Path = PROJECT) -> list[str]:
    """Return the names of what pyproject.toml asks for, without dpkit."""
    facts = tomllib.loads(project.read_text(encoding="utf-8"))["project"]
    groups = [facts["dependencies"], *facts["optional-dependencies"].values()]
    names = [NAME.match(line)[0] for group in groups for line in group]
    return [name for name in dict.fromkeys(names) if name != facts["name"]]


def is_here(name: str) -> bool:
    """Return whether something of this name is installed."""
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def main() -> None:
    """Print a line, if something is lacking."""
    absent = [name for name in required() if not is_here(name)]
    if absent:
        print(
            f"what needs these fails: {sys.prefix} has no {', '.join(absent)}",
            file=sys.stderr,
        )


if __name__ == "__main__":
    main()
