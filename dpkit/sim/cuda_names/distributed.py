"""The backend "nccl" of ``torch.distributed`` means that of the ranks.

A rank sends its tensors on simulated devices and on the CPU in one way, by the
backend "sim". A program asks for "nccl", for "gloo" or for both.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

from dpkit.sim.streams.sending import BACKEND, FAKE, thread


def any_backend(original: Callable[..., None]) -> Callable[..., None]:
    """Return a ``BackendConfig.__init__`` that takes any in a rank."""

    @wraps(original)
    def init(self: Any, backend: Any) -> None:
        if thread.rank is not None and str(backend) != FAKE:
            backend = BACKEND
        original(self, backend)

    return init
