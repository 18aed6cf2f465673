"""Memory that the processes of one host share, and that leaves nothing behind.

On Linux it has no name in any folder. Elsewhere it is a file that is removed
as soon as all have mapped it. So it is gone when the last process is, also if
that was killed.
"""

from __future__ import annotations

import mmap
import os
import socket
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import torch.distributed as dist


def shared_mapping(num_bytes: int, group: dist.ProcessGroup) -> mmap.mmap:
    """Map memory, zero at first, that all ranks of the group share.

    Args:
        num_bytes: Its size.
        group: The process group, all of whose ranks call this.

    Raises:
        ValueError: the ranks are not on one host.
    """
    file, place = -1, [""]
    if dist.get_rank(group) == 0:
        file, place[0] = _create()
        os.truncate(file, num_bytes)
    hosts: list[str] = [""] * group.size()
    dist.all_gather_object(hosts, _host(), group)
    try:
        if len(set(hosts)) > 1:
            raise ValueError(
                "the ranks of the group are not on one host (hosts: "
                f"{', '.join(sorted(set(hosts)))})"
            )
        dist.broadcast_object_list(place, group=group, group_src=0)
        with open(place[0], "r+b") as shared:
            mapping = mmap.mmap(shared.fileno(), num_bytes)
        dist.barrier(group)
    finally:
        if file >= 0:
            os.close(file)
            with suppress(FileNotFoundError):
                os.unlink(place[0])
    return mapping


def _create() -> tuple[int, str]:
    """Return a new file and the path by which other processes open it."""
    if sys.platform == "linux":
        file = os.memfd_create("dpkit")
        return file, f"/proc/{os.getpid()}/fd/{file}"
    return tempfile.mkstemp(prefix="dpkit-")


def _host() -> str:
    """Return the name of this host, and on Linux of its start."""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()
        return f"{socket.gethostname()} {boot.strip()}"
    return socket.gethostname()
