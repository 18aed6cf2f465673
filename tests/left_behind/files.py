"""Files: new ones in the folder of temporary files, and in the repository."""

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.left_behind.kinds import Change, Kind, Seen

# What tools may leave, besides what begins with a dot.
OF_TOOLS = ("__pycache__", "_build", "node_modules")
# Messages of NCCL, on the double of CUDA: a group of ranks keeps them, and
# the next one removes those of processes that are gone.
MESSAGES = "cuda_double_nccl_"


class Files(Kind):
    """What is in some folders; not what is in folders in them."""

    may_end = True  # with the process that has them

    def __init__(self) -> None:
        self._changed: list[int] = []  # when each folder has changed last
        self._paths: Seen = {}

    def folders(self) -> list[str]:
        """Return the folders that are looked at."""
        raise NotImplementedError

    def look(self) -> Seen:
        """Return the paths of what is in them, read if they have changed."""
        folders = self.folders()
        changed = [os.stat(folder).st_mtime_ns for folder in folders]
        if changed != self._changed:
            self._changed = changed
            self._paths = dict.fromkeys(_paths(folders))
        return {**self._paths}

    def describe(self, changes: list[Change]) -> Iterator[str]:
        """Return where each is, a line each."""
        for change in changes:
            yield f"a file: {change.key}"


def _paths(folders: list[str]) -> Iterator[str]:
    for folder in folders:
        for name in filter(_counts, os.listdir(folder)):
            yield os.path.join(folder, name)


def _counts(name: str) -> bool:
    return not (name.startswith((".", MESSAGES)) or name in OF_TOOLS)


class Temporary(Files):
    """Those that ``tempfile`` makes, in a folder of this process."""

    def folders(self) -> list[str]:
        """Return the one of this process."""
        return [tempfile.gettempdir()]

    def put_back(self, changes: list[Change]) -> None:
        """Remove them."""
        self.remove(change.key for change in changes)

    def remove(self, names: Iterable[str]) -> None:
        """Remove files and folders."""
        for name in names:
            path = Path(tempfile.gettempdir(), name)
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


class InRepository(Files):
    """Those of the repository; none is removed: it may be somebody's work."""

    _folders: list[str]

    def begin(self, root: Path) -> None:
        """Look at the root of the repository, and at its main folders."""
        inside = [p for p in root.iterdir() if p.is_dir() and _counts(p.name)]
        self._folders = [*map(str, [root, *inside])]

    def folders(self) -> list[str]:
        """Return the root and its main folders."""
        return self._folders


TEMPORARY, IN_REPOSITORY = Temporary(), InRepository()
