"""A lock on a folder: one process has it, and loses it when it ends.

The kernel keeps it (``flock``), and releases it when the process ends in any
way. The file stays, locks nothing, and names the last holder::

    run/lock        process 1234 on host-a

NFS keeps the lock of a host that was cut off for some time, often 90 seconds.
Where there are no locks, the job says so and goes on. A ``lock`` that is a
link is refused, because the file behind it would be overwritten; a folder, a
named pipe or another thing that is not a regular file is refused, too.

A forked process has the file open as well, and the lock ends when the last one
closes it. So the process that took the lock unlocks it, and then closes the
file; a forked one only closes its own.
"""

import errno
import os
import socket
import sys
import time
from io import FileIO
from pathlib import Path

from dpbook.job.regular_files import open_regular

if sys.platform != "win32":
    import fcntl

# A killed process takes a moment to end, and the next may start at once.
WAIT_SECONDS = 2.0
LOOK_SECONDS = 0.05
# Windows has no such flag.
NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
# What a file system without locks says; Lustre, NFS without its daemon.
NO_LOCKS = (errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK)


class FolderLock:
    """A lock on a folder, for this process or for none."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "lock"
        self._file: FileIO | None = None
        self._process = 0  # the one that took the lock

    def take(self) -> None:
        """Take the lock, which this process may have already.

        A RuntimeError is raised if another process has it, and a ValueError
        if ``lock`` is a link or not a regular file. The ``errno`` of an
        OSError is among ``NO_LOCKS`` where there are no locks.
        """
        self.release()
        self._file = _open(self._path)
        self._process = os.getpid()
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
        """Release the lock, if this process took it; else close its file."""
        if self._file and not self._file.closed:
            with self._file:
                if sys.platform != "win32" and self._process == os.getpid():
                    fcntl.flock(self._file, fcntl.LOCK_UN)


def _open(path: Path) -> FileIO:
    """Open the file of a lock, or make it.

    A ValueError is raised for a link, and for what is not a regular file.
    """

    def opener(name: str, flags: int) -> int:
        return open_regular(name, flags | NO_FOLLOW)

    try:
        file = FileIO(str(path), "a+", opener=opener)
    except ValueError as error:
        raise _refusal(path, str(error)) from error
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _link(path) from error
        # Nobody can open these two to write, so their name is looked at.
        if path.is_dir():
            why = "not a regular file, but a folder"
            raise _refusal(path, why) from error
        if path.is_socket():
            why = "not a regular file, but a socket"
            raise _refusal(path, why) from error
        raise
    if os.fstat(file.fileno()).st_nlink > 1:
        file.close()
        raise _link(path)
    return file


def _refusal(path: Path, why: str) -> ValueError:
    return ValueError(f"{path}: {why}; delete it, and start again")


def _link(path: Path) -> ValueError:
    return ValueError(
        f"{path} is a link to a file that is not the job's; delete the link, "
        "and start again"
    )


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
