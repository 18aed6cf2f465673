"""The backend "nccl" of ``torch.distributed`` means that of the ranks.

A rank sends its tensors on simulated devices and on the CPU in one way, by the
backend "sim". A program asks for "nccl", for "gloo" or for both.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch

from dpkit.sim.cuda_names.names import is_inside
from dpkit.sim.streams.sending import BACKEND, FAKE, thread


def any_backend(original: Callable[..., None]) -> Callable[..., None]:
    """Return a ``BackendConfig.__init__`` that takes any in a rank."""

    @wraps(original)
    def init(self: Any, backend: Any) -> None:
        if thread.rank is not None and str(backend) != FAKE:
            backend = BACKEND
        original(self, backend)

    return init


def without_device(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a maker of process groups that leaves out ``device_id``.

    By that, NCCL connects before the first operation. A rank is connected.
    """

    @wraps(original)
    def make(*args: Any, **kwargs: Any) -> Any:
        if thread.rank is not None:
            kwargs["device_id"] = None
        return original(*args, **kwargs)

    return make


def shown_backend(original: Callable[..., str]) -> Callable[..., str]:
    """Return a ``get_backend`` that a program gets "nccl" from."""

    @wraps(original)
    def call(*args: Any, **kwargs: Any) -> str:
        found = original(*args, **kwargs)
        return "nccl" if found == BACKEND and not is_inside() else found

    return call


def backend_of_kind(original: Callable[..., str]) -> Callable[..., str]:
    """Return a ``get_default_backend_for_device`` for a program."""

    @wraps(original)
    def call(device: Any) -> str:
        kind = torch.device(device).type
        return "nccl" if kind in ("sim", "cuda") else original(device)

    return call
