"""A lock on a folder: one process has it, and loses it when it ends.

The kernel keeps it (``flock``), and releases it when the process ends in any
way. The file stays, locks nothing, and names the last holder::

    run/lock        process 1234 on host-a

NFS keeps the lock of a host that was cut off for some time, often 90 seconds.
Where there are no locks, the job says so and goes on. A ``lock`` that is no
regular file, a link for example, is refused: it could lead to any other file.

Forked processes share the open file, and the lock with it. The process that
took it releases it for all. If that one is killed, they keep it to their end.
"""

import errno
import os
import socket
import sys
import time
from io import FileIO
from pathlib import Path

from dpkit.job.regular_files import open_own

if sys.platform != "win32":
    import fcntl

# A killed process takes a moment to end, and the next may start at once.
WAIT_SECONDS, LOOK_SECONDS = 2.0, 0.05
# What a file system without locks says; Lustre, NFS without its daemon.
NO_LOCKS = (errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK)


class FolderLock:
    """A lock on a folder, for this process or for none."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "lock"
        self._file: FileIO | None = None
        self._process = 0  # which took it

    def take(self) -> None:
        """Take the lock, which this process may have already.

        A RuntimeError is raised if another process has it, and a ValueError
        if ``lock`` is not a regular file, or has another name as well. The
        ``errno`` of an OSError is among ``NO_LOCKS`` where there are no locks.
        """
        self.release()
        self._file, self._process = _open(self._path), os.getpid()
        try:
            _wait(self._file, self._path.parent)
            self._file.truncate(0)  # not before this process has the lock
            holder = f"process {os.getpid()} on {socket.gethostname()}"
            self._file.write(holder.encode())
        except (OSError, RuntimeError) as error:
            self._file.close()
            if isinstance(error, OSError):
                error.filename = str(self._path)  # of a full disk
            raise

    def release(self) -> None:
        """Release the lock, also if forked processes have its file open."""
        if self._file and not self._file.closed:
            with self._file:
                if self._process == os.getpid() and sys.platform != "win32":
                    fcntl.flock(self._file, fcntl.LOCK_UN)


def _open(path: Path) -> FileIO:
    """Open the file of a lock, or make it."""
    try:
        return FileIO(str(path), "a+", opener=open_own)
    except ValueError as error:
        raise ValueError(
            f"{path}: {error}; delete it, and start again"
        ) from error


def _wait(file: FileIO, folder: Path) -> None:
    """Lock a file, as soon as no other process has; refuse after a time."""
    if sys.platform == "win32":
        raise OSError(errno.ENOTSUP, "this system has no flock")
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # another process has it, or another lock
            if time.monotonic() > deadline:
                break
        time.sleep(LOOK_SECONDS)
    file.seek(0)
    holder = file.read().decode() or "one that has not said who it is"
    raise RuntimeError(
        f"another job uses this folder (folder: {folder}, used by: {holder}); "
        "give each run a folder of its own"
    )
