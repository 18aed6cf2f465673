"""What is known of the machine's memory where it may have run out.

The system kills a process when there is no more memory, and says so nowhere
that the process or its parent could read.
"""

import os
import resource
from contextlib import suppress
from pathlib import Path

from dpkit.units import show_memory

# What a container may use; "max" without a limit.
_LIMIT = Path("/sys/fs/cgroup/memory.max")


def where_memory_ran_out() -> str:
    """Return that memory may have run out, and how much was used of it."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10
    return (
        "as by the system when the machine's memory runs out (the largest "
        f"rank has used {show_memory(used)}, all may use "
        f"{show_memory(_bytes_of_machine())})"
    )


def _bytes_of_machine() -> int:
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with suppress(OSError, ValueError):
        return min(pages, int(_LIMIT.read_text()))
    return pages
