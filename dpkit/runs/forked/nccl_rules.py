"""What NCCL refuses, and when it gives up, where these ranks could go on.

A group whose backend is "nccl" by name sends tensors of GPUs alone. Objects it
sends from the current GPU. And it ends the job where a rank waits for longer
than the group allows. A group without a name has gloo for the CPU.
"""

import os
import sys
from typing import Any

import torch

from dpkit.sim.devices import names, simulation

NCCL_ALONE = ("nccl", "cuda:nccl")  # what a program asks for
_OBJECTS = ("_object", "_object_list")  # how names end of what sends objects
_TRACKER = "tensor/_random.py"  # has DTensor's tracker of random numbers


def check_on_cpu(rank: int) -> None:
    """Check a call with tensors of the CPU, in a group of NCCL alone.

    Objects are on the CPU here, and on the current GPU with NCCL. So is the
    state of random numbers that a DTensor gives to all ranks
    (``ranks.shard_random``), which goes from the rank's own GPU.

    Raises:
        RuntimeError: it sends tensors of the CPU; or objects, while the
            current device is another rank's.
    """
    sender = _sender()
    if sender == "":
        raise RuntimeError(
            "No backend type associated with device type cpu: a group of the "
            "backend nccl sends tensors of GPUs alone; move the tensor there, "
            "or name no backend, and gloo sends those of the CPU"
        )
    current = simulation.current_device
    if sender == "objects" and current != rank:
        taken = names.shown(torch.device("sim", current))
        raise RuntimeError(
            f"Duplicate GPU detected: objects are sent from the current "
            f"device, which is another rank's (rank: {rank}, current device: "
            f"{taken}); torch.cuda.set_device(LOCAL_RANK) before it"
        )


def _sender() -> str:
    """Return for what PyTorch itself sends; "" if a program does."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if code.co_filename.endswith("distributed_c10d.py") and (
            code.co_name.endswith(_OBJECTS)
        ):
            return "objects"
        if code.co_filename.endswith(_TRACKER):
            return "random numbers"
        frame = frame.f_back
    return ""


def seconds_allowed(asked: str, timeout: Any) -> float:
    """Return how long a rank may wait for others in a group.

    Args:
        asked: The backend that the program has named.
        timeout: That of the group.
    """
    settings = "ASYNC_ERROR_HANDLING", "BLOCKING_WAIT"
    handling, blocking = (
        os.environ.get(f"TORCH_NCCL_{name}", os.environ.get(f"NCCL_{name}"))
        for name in settings
    )
    is_watched = handling != "0" or blocking == "1"
    is_limited = timeout is not None and (is_watched or asked == "gloo")
    return float(timeout.total_seconds()) if is_limited else float("inf")
