"""Opens regular files alone, in a folder that others may write to.

A name in such a folder may stand for something else. A pipe makes its reader
wait forever, and what is written to a link changes the file behind it. Both
functions are openers, which Python's ``open`` calls with a path and flags::

    open(path, "rb", opener=open_regular)     a link to a file will do
    open(path, "a+b", opener=open_own)        a file with this name alone
"""

import os
import stat
from contextlib import suppress

# Windows has neither of the two.
DO_NOT_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
DO_NOT_WAIT = getattr(os, "O_NONBLOCK", 0)  # for the other end of a pipe

OTHER_KINDS = {
    stat.S_IFLNK: "symbolic link",
    stat.S_IFDIR: "folder",
    stat.S_IFIFO: "named pipe",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "device",
    stat.S_IFBLK: "device",
}


def open_regular(path: str, flags: int) -> int:
    """Open a regular file, to read it.

    A symbolic link to one is followed: checkpoints are put on other disks.

    Raises:
        ValueError: it is not a regular file.
    """
    _check_regular(os.stat(path))  # to open a device may do something
    descriptor = os.open(path, flags | DO_NOT_WAIT)
    return _checked(descriptor, own=False)


def open_own(path: str, flags: int) -> int:
    """Open or make a regular file that has no other name, to write to it.

    A symbolic link is not followed. A file with a second name (a hard link)
    is refused too: what is written would be found under that name as well.

    Raises:
        ValueError: it is not a regular file, or it has another name.
    """
    with suppress(FileNotFoundError):
        _check_regular(os.lstat(path))
    # The process's mask decides who may use a file that is made here.
    descriptor = os.open(path, flags | DO_NOT_WAIT | DO_NOT_FOLLOW, 0o666)
    return _checked(descriptor, own=True)


def _checked(descriptor: int, own: bool) -> int:
    """Return an open file's descriptor, or close it and raise an error.

    It is looked at again, because the name may stand for something else now.
    """
    try:
        found = os.fstat(descriptor)
        _check_regular(found)
        if own and found.st_nlink > 1:
            raise ValueError(
                "a file with more than one name, by hard links (names: "
                f"{found.st_nlink})"
            )
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _check_regular(found: os.stat_result) -> None:
    kind = stat.S_IFMT(found.st_mode)
    if kind != stat.S_IFREG:
        what = OTHER_KINDS.get(kind, "unknown")
        raise ValueError(f"not a regular file (kind: {what})")
