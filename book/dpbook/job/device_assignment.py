"""Which GPU each rank of a job has for itself.

A job runs on GPUs if each rank has one that no other rank has; else all ranks
run on the CPU, because they need one way to talk. What a rank sees differs::

    torchrun, 4 ranks on a host of 4 GPUs    all four; local rank r takes r
    Slurm, --gpus-per-task=1                 one, which all ranks call cuda:0
    torchrun, 4 ranks on a host of 1 GPU     one, which all ranks call cuda:0

The last two look alike to each rank. So the ranks compare the serial numbers
(UUIDs) of the GPUs that they would take, and the names of their hosts. Two
containers have two names, so a GPU that they share is taken for two.
"""

import os
import socket
from collections import defaultdict
from collections.abc import Sequence

import torch
from torch.distributed import Store  # type: ignore[attr-defined]

from dpkit.processes import gpus_for_ranks


def choose_device(
    rank: int, *, world_size: int, store: Store
) -> tuple[torch.device, str]:
    """Return this rank's device, and why it is the CPU where GPUs were seen.

    All ranks of the job call this; the device of all is of one kind. A GPU
    becomes the current device of this process.
    """
    gpu = _taken()
    store.set(f"gpu/{rank}", "" if gpu is None else _serial_number(gpu))
    serials = [store.get(f"gpu/{r}").decode() for r in range(world_size)]
    reason = why_cpu(serials)
    if gpu is None or reason:
        return torch.device("cpu"), reason
    torch.get_device_module(gpu).set_device(gpu)  # only on CUDA
    return gpu, ""  # only on CUDA


def why_cpu(serials: Sequence[str]) -> str:
    """Return why ranks cannot all have their own GPU; "" if nothing is odd.

    Args:
        serials: The serial number of the GPU that each rank would take; "" if
            it sees none.

    Example:
        >>> from dpbook.job.device_assignment import why_cpu
        >>> why_cpu(["GPU-a", "GPU-b"])
        ''
        >>> why_cpu(["GPU-a", "GPU-a", "GPU-b"])
        'ranks 0 and 1 see the same GPU'
        >>> why_cpu(["GPU-a", "", ""])
        'ranks 1 and 2 have no GPU'
        >>> why_cpu(["", ""])
        ''
    """
    if not any(serials):
        return ""
    ranks = defaultdict(list)
    for rank, serial in enumerate(serials):
        ranks[serial].append(rank)
    if without := ranks.pop("", []):
        have = "has" if len(without) == 1 else "have"
        return f"{_listed(without)} {have} no GPU"
    shared = [found for found in ranks.values() if len(found) > 1]
    return f"{_listed(shared[0])} see the same GPU" if shared else ""


def _listed(ranks: list[int]) -> str:
    """Return "rank 2" or "ranks 0, 1 and 2"."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    return f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"


def _taken() -> torch.device | None:
    """Return the GPU that this rank would take; None: it sees none for it."""
    gpus = gpus_for_ranks()
    local_rank = int(os.environ.get("LOCAL_RANK", 0))
    if local_rank < len(gpus):
        return gpus[local_rank]
    return gpus[0] if len(gpus) == 1 else None


def _serial_number(gpu: torch.device) -> str:  # only on CUDA
    properties = torch.cuda.get_device_properties(gpu)
    return f"{socket.gethostname()} {properties.uuid}"
