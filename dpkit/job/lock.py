"""A lock on a folder: one process has it, and loses it when it ends.

The kernel keeps it (``flock``), so it goes with the process that has it,
however that ends. The file stays, locks nothing, and tells who was last::

    run/lock        process 1234 on host-a

On a disk of this machine no two processes have it at once. On a network file
system it is as good as the locks there. NFS keeps them on its server; the
lock of a host that was cut off stays for the time of a lease, often 90
seconds. Lustre has locks if it is mounted with ``flock``; ``localflock``
keeps those of each host apart. Where there are no locks, the job says so and
goes on.

The lock belongs to the open file, which a forked process shares. The process
that took the lock lets it go for all of them. If that one is killed, forked
processes that outlive it keep the lock until they end too.
"""

import errno
import os
import socket
import sys
import time
from io import FileIO
from pathlib import Path

if sys.platform != "win32":
    import fcntl

# A killed process takes a moment to end, and the next may start at once.
WAIT_SECONDS, LOOK_SECONDS = 2.0, 0.05
# What a file system without locks says; Lustre, NFS without its daemon.
NO_LOCKS = (errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK)


def take_lock(path: Path) -> FileIO:
    """Lock a file, as long as what is returned is open.

    Raises:
        RuntimeError: another process has it.
        OSError: the file could not be written, or not be locked; where there
            are no locks, its ``errno`` is among ``NO_LOCKS``.
    """
    file = path.open("a+b", buffering=0)
    try:
        if not _lock(file):
            file.seek(0)
            holder = file.read().decode() or "one that has not said who it is"
            raise RuntimeError(
                f"another job uses this folder (folder: {path.parent}, used "
                f"by: {holder}); give each run a folder of its own"
            )
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}".encode())
    except (OSError, RuntimeError) as error:
        file.close()
        if isinstance(error, OSError):
            error.filename = str(path)  # of a full disk
        raise
    return file


def release_lock(file: FileIO) -> None:
    """Release a lock, also if forked processes have its file open."""
    if sys.platform != "win32":
        fcntl.flock(file, fcntl.LOCK_UN)


def _lock(file: FileIO) -> bool:
    """Lock a file; return whether that was possible before long."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not _lock_now(file):
        if time.monotonic() > deadline:
            return False
        time.sleep(LOOK_SECONDS)
    return True


def _lock_now(file: FileIO) -> bool:
    """Lock a file, unless another process has; or another one of ours."""
    if sys.platform == "win32":
        raise OSError(errno.ENOTSUP, "this system has no flock")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
