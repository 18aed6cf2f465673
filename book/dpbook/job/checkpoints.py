"""The checkpoints of one run, in a folder: save, find the newest good one.

A file is what ``torch.save`` writes, a zip archive, whose checksums tell a
damaged or torn file from a good one. It is written under another name, and
takes its own when all of it is on disk. So at any moment, a kill or a power
cut included, a name stands for a whole file or for none::

    write x.ckpt.tmp ─▶ fsync ─▶ rename to x.ckpt ─▶ fsync the folder

A draft is a new file each time, so that no link is followed. What is not a
regular file is not read.
"""

import hashlib
import io
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import torch

from dpbook.job.lock import NO_LOCKS, FolderLock
from dpbook.job.regular_files import open_regular
from dpkit.units import check_count


@dataclass(frozen=True)
class Found:
    """What a folder of checkpoints holds for a run."""

    path: Path | None  # the newest good checkpoint
    content: bytes  # what that file holds, for unpack()
    refused: list[str]  # why each newer file was passed over


class Checkpoints:
    """The checkpoints of one run, in a folder; the newest ``keep`` stay.

    ``settings`` are numbers and strings that tell this run from others.

    Example:
        >>> import tempfile
        >>> from dpbook.job.checkpoints import Checkpoints, unpack
        >>> folder = tempfile.TemporaryDirectory()
        >>> checkpoints = Checkpoints(folder.name, {"lr": 0.5}, keep=2)
        >>> for step in (3, 6, 9):
        ...     saved = checkpoints.save(step, {"w": torch.full((4,), step)})
        >>> unpack(checkpoints.newest().content)[1]
        {'w': tensor([9, 9, 9, 9])}
        >>> _ = saved.write_bytes(saved.read_bytes()[:150])  # torn
        >>> unpack(checkpoints.newest().content)[1]
        {'w': tensor([6, 6, 6, 6])}
        >>> folder.cleanup()
    """

    def __init__(
        self,
        folder: Path | str,
        settings: Mapping[str, int | float | str],
        keep: int = 3,
    ) -> None:
        check_count("keep", keep)
        self.folder = Path(folder)
        self.keep = keep
        self.settings = dict(settings)
        self._lock = FolderLock(self.folder)
        text = json.dumps(self.settings, sort_keys=True)
        self.fingerprint = hashlib.sha256(text.encode()).hexdigest()[:8]

    def lock(self) -> list[str]:
        """Keep other jobs out, until this process ends or calls ``unlock``.

        Where there are no locks, a line that says so is returned. If another
        job has the lock, a RuntimeError is raised; if ``lock`` in the folder
        is a link, or is not a regular file, a ValueError.
        """
        _make_folder(self.folder)
        try:
            self._lock.take()
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
            facts = f"folder: {self.folder}, why: {error.strerror}"
            return [f"nothing keeps other jobs out ({facts})"]
        return []

    def unlock(self) -> None:
        """Release the lock."""
        self._lock.release()

    def path(self, step: int) -> Path:
        """Return the name of the checkpoint after ``step`` steps."""
        return self.folder / f"step-{step:08d}-{self.fingerprint}.ckpt"

    def save(self, step: int, state: Mapping[str, Any]) -> Path:
        """Write a checkpoint, then delete those that are too old.

        When it returns the path, the file is on disk; after an OSError the
        older ones stay. Only one process may save: see ``lock``. The state is
        tensors on any device, numbers and strings, in dictionaries and lists.
        """
        _make_folder(self.folder)
        path = self.path(step)
        content = io.BytesIO()
        torch.save({"settings": self.settings, "state": dict(state)}, content)
        _write_whole(path, content.getvalue())
        # Newer ones are torn: this step is done again since they were made.
        mine = sorted(self.folder.glob(f"step-*-{self.fingerprint}.ckpt"))
        for old in [file for file in mine if file <= path][: -self.keep]:
            old.unlink(missing_ok=True)
        return path

    def newest(self, check: Callable[[Any], None] | None = None) -> Found:
        """Find the newest good checkpoint of this run.

        A file that is damaged, or that belongs to another run, or whose state
        ``check`` raises a ValueError for, is refused and the next one read.
        So is what is not a regular file, and a state whose ``step`` is not
        the one in the file's name.
        If all good checkpoints belong to other runs, a ValueError is raised.
        """
        refused: list[str] = []
        foreign: list[str] = []
        for path in sorted(self.folder.glob("*.ckpt"), reverse=True):
            try:
                content = _read(path)
                settings, state = unpack(content)
                if settings == self.settings:
                    if check:
                        check(state)
                    _check_name(path, state)
            except OSError as error:
                why = f"cannot be read (why: {error.strerror})"
                refused.append(f"{path}: {why}")
                continue
            except ValueError as error:
                refused.append(f"{path}: {error}")
                continue
            if settings == self.settings:
                return Found(path, content, refused)
            differ = _differences(settings, self.settings)
            refused.append(f"{path}: checkpoint of another run ({differ})")
            foreign.append(refused[-1])
        if foreign:
            advice = "give each run a folder of its own"
            raise ValueError(f"{foreign[0]}; {advice}")
        return Found(None, b"", refused)


def unpack(content: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the settings and the state in the content of a checkpoint file.

    Nothing in it is executed: it is read with ``weights_only=True``. Tensors
    are put on the CPU. A ValueError is raised for anything else.
    """
    try:
        damaged = ZipFile(io.BytesIO(content)).testzip()
    except Exception as error:  # many kinds: a length can be damaged too
        raise ValueError(f"damaged checkpoint (why: {error})") from error
    if damaged:
        raise ValueError(f"damaged checkpoint (part: {damaged})")
    try:
        parts = torch.load(io.BytesIO(content), "cpu", weights_only=True)
    except Exception as error:  # many kinds, none of them documented
        raise ValueError(
            f"not a checkpoint (torch.load raises: {type(error).__name__})"
        ) from error
    match parts:
        case {"settings": dict(settings), "state": dict(state)}:
            _check_settings(settings)
            return settings, state
    raise ValueError("not a checkpoint (missing: settings or state of a run)")


def _check_settings(settings: dict[str, Any]) -> None:
    """Raise a ValueError for a setting that is no number and no string."""
    for name, value in settings.items():
        if not isinstance(value, int | float | str):
            kind = type(value).__name__
            raise ValueError(f"not a checkpoint (setting {name}: a {kind})")


def _read(path: Path) -> bytes:
    """Return what a regular file holds."""
    with open(path, "rb", opener=open_regular) as file:
        return file.read()


def _check_name(path: Path, state: dict[str, Any]) -> None:
    """Raise a ValueError if a file bears the name of another step.

    A file that was given a name of another form may be of any step.
    """
    named = re.match(r"step-(\d+)-", path.name)
    step = state.get("step")
    if named and isinstance(step, int) and step != int(named[1]):
        raise ValueError(
            f"another step's checkpoint (step: {step} in its state, "
            f"{int(named[1])} in its name)"
        )


def _make_folder(folder: Path) -> None:
    """Make a folder and those above it; put their names on disk."""
    new = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for each in new:
        _sync(each.parent)


def _write_whole(path: Path, content: bytes) -> None:
    """Put a file in place whole and on disk, or leave what was there."""
    draft = path.with_name(f"{path.name}.tmp")
    draft.unlink(missing_ok=True)  # from a job that was killed, or a link
    file = draft.open("xb")  # makes a new file, or fails
    try:
        with file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        error.filename = error.filename or str(draft)  # of a full disk
        raise
    _sync(path.parent)


def _sync(folder: Path) -> None:
    """Put the names in a folder on disk, which are written by themselves."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _differences(found: dict[str, Any], mine: dict[str, Any]) -> str:
    """Return which settings differ, as "lr: 0.2 there, 0.1 here"."""
    return ", ".join(
        f"{x}: {found.get(x, 'none')} there, {mine.get(x, 'none')} here"
        for x in {**mine, **found}
        if found.get(x) != mine.get(x)
    )
