"""Opens regular files alone, in a folder that others may write to.

A name there may stand for something else: a named pipe makes its reader wait
for ever, and a device such as ``/dev/zero`` can be read without end.
"""

import os
import stat

# Windows has no such flag.
DO_NOT_WAIT = getattr(os, "O_NONBLOCK", 0)  # for the other end of a pipe
# By the first letter of a mode, as `ls -l` shows it.
KINDS = {"p": "named pipe", "c": "device", "b": "device", "d": "folder"}


def open_regular(path: str, flags: int) -> int:
    """Open a regular file, or the one that a link leads to.

    It is an opener, for ``open(path, "rb", opener=open_regular)``. What is
    open is looked at, and not the name, which may change at any moment.

    Args:
        path: The file.
        flags: Those of ``os.open``. With ``os.O_NOFOLLOW`` a link is refused.

    Returns:
        The descriptor. A file that is made has the mode that the process's
        umask leaves.

    Raises:
        ValueError: it is a named pipe, a device or a folder.
    """
    descriptor = os.open(path, flags | DO_NOT_WAIT, 0o666)
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        kind = KINDS[stat.filemode(mode)[0]]
        raise ValueError(f"not a regular file, but a {kind}")
    return descriptor
