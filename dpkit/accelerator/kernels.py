"""For which GPUs this torch has kernels.

``torch.cuda.get_arch_list()`` tells, but after it a process can no longer
fork: torch takes the question for a start of CUDA, and refuses to work in
the children. The answer is a constant in its library, where it can be read.
"""

import mmap
import re
from functools import cache
from pathlib import Path

import torch

# Words, as C stores them: "sm_75 sm_80 compute_80", then a zero.
LIST = re.compile(rb"\0((?:(?:sm|compute)_\d+a? ?)+)(?=\0)")


@cache
def architectures() -> tuple[str, ...]:
    """Return what ``torch.cuda.get_arch_list()`` would; () if not found."""
    library = Path(torch.__path__[0], "lib", "libtorch_python.so")
    if not torch.version.cuda or not library.exists():
        return ()
    with (
        library.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text,
    ):
        found = [match[1].decode().split() for match in LIST.finditer(text)]
    # Were there more lists than one, a GPU in any of them would do.
    return tuple(dict.fromkeys(name for names in found for name in names))
