"""Which calls of ``torch.nn.parallel`` are on simulated devices.

PyTorch takes a number, as in ``device_ids=[0, 1]``, for a device of the
accelerator: of a GPU where there is one, else a simulated device. A call is on
simulated devices, and numbers are theirs until it returns, if one is named in
full, as ``"sim:0"``, or if a tensor or a module that is given lies on one.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from itertools import chain
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from dpkit.sim.changes.mixed_backends import is_on_sim, on_sim
from dpkit.sim.devices import names
from dpkit.sim.devices.names import accelerator, device_of, full_device


def means_simulated(*given: Any) -> bool:
    """Return whether a call is on simulated devices, by what it is given.

    ``as_cuda`` puts another in place.
    """
    return any(map(_is_simulated, tree_leaves(given)))


def _is_simulated(given: Any) -> bool:
    """Return whether something is a simulated device, or lies on one."""
    if isinstance(given, nn.Module):
        return any(device.type == "sim" for device in _devices_of(given))
    if isinstance(given, torch.Tensor):
        return device_of(given).type == "sim"
    if isinstance(given, str):
        return given.partition(":")[0] == "sim"
    return isinstance(given, torch.device) and given.type == "sim"


def _devices_of(module: nn.Module) -> Iterator[torch.device]:
    return map(device_of, chain(module.parameters(), module.buffers()))


def _chosen_by(*given: Any) -> AbstractContextManager[None]:
    """Return the block of a call that is given this."""
    return on_sim() if means_simulated(*given) else nullcontext()


def choosing(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that chooses by what it is given."""

    @wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        with _chosen_by(args, kwargs):
            return original(*args, **kwargs)

    return call


def choosing_static(original: Callable[..., Any]) -> Any:
    """Do so for a static method, such as the forward of a Function."""
    return staticmethod(choosing(original))


def in_place_of(
    new: Callable[..., Any],
) -> Callable[[Callable[..., Any] | None], Callable[..., Any]]:
    """Return what makes a function that calls ``new`` on simulated devices.

    Args:
        new: A function that takes the same arguments.
    """

    def wrap(original: Callable[..., Any] | None) -> Callable[..., Any]:
        if original is None:  # as where PyTorch is built without CUDA
            return new

        @wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            is_ours = accelerator().type == "sim"
            return (new if is_ours else original)(*args, **kwargs)

        return call

    return wrap


def kind_for_module(original: Callable[[], str | None]) -> Any:
    """Return what tells ``nn.DataParallel`` which kind of device it uses.

    None, and it leaves a module on the CPU as it is.
    """

    def kind() -> str | None:
        if is_on_sim():
            return "sim"
        found = original()
        return None if found == "sim" else found

    return kind


def kind_of_numbers(original: Callable[[], str | None]) -> Any:
    """Return what tells PyTorch which kind of device has numbers."""
    return lambda: "sim" if is_on_sim() else original()


def nccl_found(original: Callable[..., bool]) -> Callable[..., bool]:
    """Return whether NCCL adds tensors; it does not simulated ones."""

    def is_available(tensors: Any) -> bool:
        return not means_simulated(*tensors) and original(tensors)

    return is_available


def init_chosen(original: Callable[..., None]) -> Callable[..., None]:
    """Return a ``DataParallel.__init__`` that chooses by its arguments."""

    @wraps(original)
    def init(self: Any, module: nn.Module, *args: Any, **kwargs: Any) -> None:
        with _chosen_by(module, args, kwargs):
            original(self, module, *args, **kwargs)
            if is_on_sim():
                first = torch.device("sim", self.device_ids[0])
                self.src_device_obj = full_device(names.read(first))

    return init


def forward_checked(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a ``DataParallel.forward`` that looks where its module lies."""

    @wraps(original)
    def forward(self: Any, *inputs: Any, **kwargs: Any) -> Any:
        first = getattr(self, "src_device_obj", None)  # not on the CPU
        with _chosen_by(first, self.module, inputs, kwargs):
            if is_on_sim():
                _check_place(self)
            return original(self, *inputs, **kwargs)

    return forward


def _check_place(parallel: Any) -> None:
    """Refuse a module that does not lie on the first device.

    Raises:
        RuntimeError: a parameter or a buffer lies elsewhere; or the module was
            wrapped before it was moved to a simulated device.
    """
    if not parallel.device_ids:
        raise RuntimeError(
            "nn.DataParallel has no device_ids, because its module was on the "
            "CPU when it was wrapped, and simulated devices are not chosen "
            'for such a module; move it before, or give device_ids=["sim:0", '
            '"sim:1"]'
        )
    first = parallel.src_device_obj
    for device in _devices_of(parallel.module):
        if device != first:
            raise RuntimeError(
                "module must have its parameters and buffers on device "
                f"{names.shown(first)} (device_ids[0]) but found one of them "
                f"on device: {names.shown(device)}"
            )
