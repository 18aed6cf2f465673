"""What a script writes while it is checked, and how it is put back.

``check`` runs a script several times, and stops it early. A checkpoint that
the ranks have written must not be what one rank goes on from, nor replace one
of the user's. So before a file is written to, a copy is kept, and after each
run it is put back::

    there before    what the script does       after the run
    yes             writes, moves, removes     as it was
    no              makes it, after a step     removed
    no              makes it, before a step    left: such as data it downloads

Python tells what it opens, moves and removes (``sys.addaudithook``), and
``torch.save`` is looked at besides. What other libraries write by themselves,
as safetensors does, is seen only inside of a folder that the script makes.
"""

import fcntl
import filecmp
import os
import shutil
import sys
from collections.abc import Iterable
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import torch
from torch.optim import Optimizer

from dpkit.runs.torchrun.watchers import Watcher
from dpkit.sim.changes import replaced

_NO_FILES = tuple(f"{os.sep}{name}{os.sep}" for name in ("dev", "proc", "sys"))
_WRITING = os.O_WRONLY | os.O_RDWR
_MOST_NAMED = 4
# An event of Python: which of its arguments are paths that it changes, and
# which is the folder that these are relative to.
_EVENTS: dict[str, tuple[tuple[int, ...], int | None]] = {
    "os.mkdir": ((0,), 2),
    "os.remove": ((0,), 1),
    "os.rename": ((0, 1), None),
    "os.rmdir": ((0,), 1),
    "os.symlink": ((1,), None),
    "os.truncate": ((0,), None),
}


class WrittenFiles(Watcher):
    """Keeps a copy of each file before a rank's script changes it.

    Args:
        rank: The number of the rank.
        folder: All ranks keep their copies there.
    """

    def __init__(self, rank: int, folder: Path) -> None:
        super().__init__(rank)
        self._folder = folder
        self._has_stepped = False

    def begin(self, stack: ExitStack) -> None:
        """Look at what is written, until the process of the rank ends."""
        sys.addaudithook(self._heard)
        save: Any = torch.save  # it opens files without Python

        def watched(value: Any, file: Any, *args: Any, **kwargs: Any) -> None:
            if isinstance(file, (str, os.PathLike)):
                self._keep(os.path.realpath(file))
            save(value, file, *args, **kwargs)

        stack.callback(replaced(torch, "save", watched).apply())

    def stepped(self, optimizer: Optimizer) -> None:
        """Note that what is made from now on is a result."""
        self._has_stepped = True

    def _heard(self, event: str, given: tuple[Any, ...]) -> None:
        """Keep what an event of Python is about to change."""
        if event == "open":
            path, _, flags = given
            if flags & _WRITING and isinstance(path, (str, bytes)):
                self._keep(os.path.realpath(os.fsdecode(path)))
        elif event in _EVENTS:
            positions, folder = _EVENTS[event]
            base = -1 if folder is None else given[folder]
            for i in positions:
                if not isinstance(given[i], int):
                    self._keep(_itself(os.fsdecode(given[i]), base))

    def _keep(self, path: str) -> None:
        """Keep a copy of what is at a path, once for all ranks."""
        own = str(self._folder.parent) + os.sep
        if path.startswith((own, *_NO_FILES)) or "__pycache__" in path:
            return
        is_there = os.path.lexists(path)
        if is_there and not (os.path.isfile(path) or os.path.isdir(path)):
            return  # such as a socket
        entry = self._folder / sha256(path.encode()).hexdigest()
        with (self._folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if entry.exists():
                return
            entry.mkdir()
            kind = "made" if self._has_stepped else "left"
            if is_there:
                kind = "changed"
                _copy(path, entry / "old")
            (entry / kind).write_text(path)


class FilesPutBack:
    """A block after which all that scripts have written is put back.

    It may be entered several times.

    Args:
        folder: It has copies, and what else a run is given. What is written
            there is not looked at.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._copies = folder / "written"
        self._paths: dict[str, set[str]] = {}  # what was done -> to which

    def watcher(self, rank: int) -> Watcher:
        """Return what looks on in the process of a rank."""
        return WrittenFiles(rank, self._copies)

    def __enter__(self) -> None:
        self._copies.mkdir()

    def __exit__(self, *_: object) -> None:
        for path, old in sorted(self._kept("changed").items()):
            self._put_back(path, old)
        for path in _tops(self._kept("made")):
            if os.path.lexists(path):
                _remove(path)
                self._note("removed again", path)
        for path in _tops(self._kept("left")):
            if os.path.lexists(path) and path.startswith(os.getcwd()):
                self._note("kept, as it was made before the first step", path)
        shutil.rmtree(self._copies)

    def _kept(self, kind: str) -> dict[str, Path]:
        """Return the paths of a kind, and where the copy of each is."""
        entries = self._copies.glob(f"*/{kind}")
        return {e.read_text(): e.parent / "old" for e in entries}

    def _put_back(self, path: str, old: Path) -> None:
        """Make what is at a path the same as its copy."""
        if old.is_dir() and os.path.isdir(path):
            return
        is_file = os.path.isfile(path) and old.is_file()
        if is_file and filecmp.cmp(path, old, shallow=False):
            return
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            if os.path.isdir(path):
                shutil.rmtree(path)
            _copy(str(old), Path(path))
            self._note("put back as it was", path)
        except OSError as error:
            kept = shutil.move(old, mkdtemp(prefix="dpkit-check-"))
            self._note(f"not put back: {error}; its copy is {kept}", path)

    def _note(self, what: str, path: str) -> None:
        self._paths.setdefault(what, set()).add(os.path.relpath(path))

    def said(self) -> list[str]:
        """Return which files were written, in a line."""
        if not self._paths:
            return []
        parts = []
        for what, paths in self._paths.items():
            named = _tops(paths)
            more = len(named) - _MOST_NAMED
            rest = f" and {more} more" if more > 0 else ""
            parts.append(f"{', '.join(named[:_MOST_NAMED])}{rest} ({what})")
        return [
            f"the script has written files in this check: {'; '.join(parts)}"
        ]


def _itself(path: str, folder: int) -> str:
    """Return the whole path of a name, which may be that of a link."""
    if folder >= 0:
        path = os.path.join(os.readlink(f"/proc/self/fd/{folder}"), path)
    parent, name = os.path.split(os.path.abspath(path))
    return os.path.join(os.path.realpath(parent), name)


def _tops(paths: Iterable[str]) -> list[str]:
    """Return the paths that are not inside of others."""
    found: list[str] = []
    for path in sorted(paths):
        if not found or not path.startswith(found[-1] + os.sep):
            found.append(path)
    return found


def _copy(path: str, to: Path) -> None:
    """Copy a file, a link or a folder."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.copytree(path, to, symlinks=True)
    else:
        shutil.copy2(path, to, follow_symlinks=False)


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        os.remove(path)
