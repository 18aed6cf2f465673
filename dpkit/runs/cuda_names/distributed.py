"""The backend "nccl" of ``torch.distributed`` means that of the ranks.

A rank sends its tensors on simulated devices and on the CPU in one way, by the
backend "sim". A program asks for "nccl", for "gloo" or for both.
Options of "nccl" have no effect, which is noted. What a PyTorch for GPUs does
not have is refused in its words.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

from torch._C._distributed_c10d import Backend

from dpkit.runs.cuda_names.not_modelled import note
from dpkit.sim.streams import BACKEND, FAKE, thread

#: A backend that PyTorch for GPUs comes without -> what it says of it.
NOT_BUILT_IN = {
    "mpi": "Distributed package doesn't have MPI built in. MPI is only "
    "included if you build PyTorch from source on a host that has MPI "
    "installed.",
    "ucc": "Distributed package doesn't have UCC built in",
    "xccl": "Distributed package doesn't have XCCL built in",
}


class ProcessGroupNCCL:
    """What programs find in ``torch.distributed`` on a torch without CUDA."""

    class Options(Backend.Options):
        """Options that a program sets: they are kept, and nobody asks.

        Args:
            is_high_priority_stream: As in PyTorch.
        """

        def __init__(self, is_high_priority_stream: bool = False) -> None:
            super().__init__("nccl")
            self.is_high_priority_stream = is_high_priority_stream


def options_noted(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that makes groups, and notes their options."""

    @wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("pg_options") is not None:
            note(
                "pg_options of a process group: what they set changes nothing "
                "here"
            )
        return original(*args, **kwargs)

    return call


def any_backend(original: Callable[..., None]) -> Callable[..., None]:
    """Return a ``BackendConfig.__init__`` that takes any in a rank.

    It refuses what PyTorch for GPUs does not have, by a RuntimeError.
    """

    @wraps(original)
    def init(self: Any, backend: Any) -> None:
        thread.asked = str(backend).lower()
        for pair in thread.asked.split(","):  # such as "cuda:nccl"
            name = pair.rpartition(":")[2]
            if name in NOT_BUILT_IN:
                raise RuntimeError(NOT_BUILT_IN[name])
        if thread.rank is not None and str(backend) != FAKE:
            backend = BACKEND
        original(self, backend)

    return init
