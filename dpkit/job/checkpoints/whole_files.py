"""Files that are whole or not there: written at once, checked when read.

A file is one line that tells what must follow, and that::

    dpkit checkpoint 1, 1042317 bytes, sha256 9f86d081…
    (1042317 bytes)

It comes to be under another name, and takes its own when all of it is on
disk. So at any moment, a kill or a power cut included, a name stands for a
whole file or for none::

    write x.ckpt.tmp ─▶ fsync ─▶ rename to x.ckpt ─▶ fsync the folder
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

START = b"dpkit checkpoint 1, "
HEADER = re.compile(START + rb"(\d{1,18}) bytes, sha256 ([0-9a-f]{64})\n")


def make_folder(folder: Path) -> None:
    """Make a folder, and those above it, unless they are there.

    When it returns, the new ones are on disk.

    Raises:
        OSError: one could not be made.
    """
    new = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for each in new:
        _sync(each.parent)


def write_whole(path: Path, content: bytes) -> None:
    """Put a file in place whole, or leave what was there.

    When it returns, the file is on disk.

    Args:
        path: The file to write, in a folder that exists.
        content: What follows the first line.

    Raises:
        OSError: it could not be written.
    """
    draft = path.with_name(f"{path.name}.tmp")
    digest = hashlib.sha256(content).hexdigest()
    header = f"dpkit checkpoint 1, {len(content)} bytes, sha256 {digest}\n"
    try:
        with draft.open("wb") as file:
            file.write(header.encode() + content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        error.filename = error.filename or str(draft)  # of a full disk
        raise
    _sync(path.parent)


def read_whole(path: Path) -> bytes:
    """Return what was written to a file, if all of it is there.

    Args:
        path: A file that :func:`write_whole` has written.

    Returns:
        All that follows the first line.

    Raises:
        ValueError: it cannot be read, is no checkpoint, or is torn.
    """
    try:
        whole = path.read_bytes()
    except OSError as error:
        raise ValueError(f"cannot be read (why: {error.strerror})") from error
    if b"\n" not in whole and whole[: len(START)] == START[: len(whole)]:
        raise ValueError(f"torn checkpoint (bytes: {len(whole)})")
    header = HEADER.match(whole)
    if header is None:
        raise ValueError(f"not a checkpoint (begins with: {whole[:16]!r})")
    content = whole[header.end() :]
    num_bytes, digest = int(header[1]), header[2].decode()
    if len(content) != num_bytes:
        raise ValueError(
            f"torn checkpoint (bytes after the first line: {len(content)}, "
            f"written: {num_bytes})"
        )
    found = hashlib.sha256(content).hexdigest()
    if found != digest:
        raise ValueError(
            f"torn checkpoint (sha256: {found[:8]}…, written: {digest[:8]}…)"
        )
    return content


def _sync(folder: Path) -> None:
    """Put the names in a folder on disk, which are written by themselves."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
