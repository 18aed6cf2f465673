"""Copy the plain notebooks of the built site to where readers work on them.

Usage: python scripts/chapters/copy_notebooks.py ROOT

They go to the folder `notebooks`, with the records that their cells read. A
notebook that the reader has changed since it was copied stays as it is; to get
the new one, move it away. The folder `notebooks/.given` has what was copied.
"""

import shutil
import sys
from pathlib import Path

RECORDS = ("_data", "elsewhere")


def copy(root: Path) -> list[str]:
    """Copy the notebooks; return the names of those that stay.

    Raises:
        ValueError: No site is built.
    """
    plain = sorted(root.glob("_build/html/_sources/book/*.ipynb"))
    if not plain:
        raise ValueError("there is no built site; first: make book")
    folder = root / "notebooks"
    given = folder / ".given"
    given.mkdir(parents=True, exist_ok=True)
    staying = []
    for path in plain:
        target, before = folder / path.name, given / path.name
        if not is_changed(target, before):
            shutil.copy(path, target)
            shutil.copy(path, before)
        elif not before.exists() or path.read_bytes() != before.read_bytes():
            staying.append(path.name)
    for name in RECORDS:
        shutil.copytree(
            root / "book" / name, folder / name, dirs_exist_ok=True
        )
    return staying


def is_changed(target: Path, before: Path) -> bool:
    """Return whether a notebook is there, and is not what was copied."""
    if not target.exists():
        return False
    return not before.exists() or target.read_bytes() != before.read_bytes()


def main() -> int:
    """Copy them; name those that stay."""
    try:
        staying = copy(Path(sys.argv[1]))
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    for name in staying:
        print(
            f"notebooks/{name} has changes of yours and stays, although the "
            "chapter is new (to get it, rename yours, and type make notebooks "
            "again)"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
