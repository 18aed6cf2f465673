"""DataParallel: a module that uses several devices in each forward.

One forward on two devices, and the backward that autograd makes of it::

    x ────────┬─ rows ─▶ replica 0 ─▶ y0 ─┬─▶ y     on devices[0]
    module ───┼────────────┘              │
              ├─ rows ─▶ replica 1 ─▶ y1 ─┘
              └─ copy ─────┘
       scatter, replicate       apply   gather

A replica is made of copies, and a copy is an operation like others. Backward
goes through it and takes the gradient back to devices[0]. There it is added to
those of the other replicas, in the parameters of the module.
"""

from contextlib import AbstractContextManager, nullcontext
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import nn

from dpkit.arguments import Devices, check_shaped
from dpkit.data_parallel.nested import gather_nested, scatter_nested
from dpkit.machine import has_streams
from dpkit.placement import scatter


class Inputs(NamedTuple):
    """What a module is called with."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class DataParallel(nn.Module):
    """Run a module on several devices, each on a shard of its inputs.

    It is called as the module is, with tensors on any device. Each forward
    cuts them by rows, copies the module to the other devices, runs the
    replicas one after another, without threads, and joins their outputs on
    the first device. Gradients and state dict are those of ``module``. The
    gradients equal those of one device if the output for an example depends
    on that example alone; in batch norm each shard has its statistics.

    Tensors may stand in tuples, lists, dicts and dataclasses, and have to
    agree in their number of rows, the first dimension. Those without
    dimensions are copied to each replica; all else is given to each as it is.
    Fewer rows than devices run on as many devices as there are rows; none, on
    the first. Outputs are joined in the same way; tensors without dimensions,
    such as losses, become one with an entry for each replica that ran.

    The replica on the first device is the module itself: what it changes in
    itself stays, such as running statistics. Hooks run on each replica.

    The module lies on ``devices[0]`` when it runs; ``.to(devices[0])`` of the
    wrapper takes it there. A device may be there more than once.

    Raises:
        ValueError: in forward: the module lies elsewhere, tensors differ in
            their number of rows, or outputs cannot be joined.

    Example:
        >>> devices = dpkit.devices(3, kind="sim")
        >>> net = dpkit.DataParallel(nn.Linear(2, 1), devices)
        >>> y = net.to(devices[0])(torch.ones(7, 2))
        >>> y.sum().backward()
        >>> net.module.weight.grad
        tensor([[7., 7.]], device='sim:0')
    """

    def __init__(self, module: nn.Module, devices: Devices) -> None:
        super().__init__()
        check_shaped("module", module)
        self.module = module
        # The device of a tensor has a number; "cuda" or "sim" alone has none.
        self.devices = [x.device for x in scatter(torch.empty(0), devices)]
        self.register_load_state_dict_pre_hook(  # type: ignore[no-untyped-call]
            _name_as_held
        )

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the module returns, for all rows."""
        self._check_place()
        shards = scatter_nested(Inputs(args, kwargs), self.devices)
        devices = self.devices[: len(shards)]
        replicas = replicate_module(self.module, devices)
        outputs = []
        for device, replica, shard in zip(devices, replicas, shards):
            with _as_current(device):
                outputs.append(replica(*shard.args, **shard.kwargs))
        return gather_nested(outputs, self.devices[0])

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Return the state dict of the module within."""
        return self.module.state_dict(*args, **kwargs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Load a state dict of the module within."""
        return self.module.load_state_dict(*args, **kwargs)

    def _check_place(self) -> None:
        """Raise ValueError unless the module lies on the first device."""
        for name, tensor in chain(
            self.module.named_parameters(), self.module.named_buffers()
        ):
            if tensor.device != self.devices[0]:
                raise ValueError(
                    f"the module does not lie on the first device ({name}: "
                    f"{tensor.device}, devices[0]: {self.devices[0]}); "
                    "module.to(devices[0]) takes it there"
                )


def replicate_module(module: nn.Module, devices: Devices) -> list[nn.Module]:
    """Return a replica of a module on each device; the first is itself.

    The others are made for one forward: what it sets in them is lost.
    """
    return [module] + [_copy_of(module, device) for device in devices[1:]]


def _copy_of(module: nn.Module, device: torch.device) -> nn.Module:
    """Return a copy of a module and all that it consists of."""
    copies: dict[Any, Any] = {  # one each, even if two modules hold it
        tensor: tensor.to(device, copy=True)
        for tensor in chain(module.parameters(), module.buffers())
    }
    modules = list(module.modules())
    copies |= {m: object.__new__(type(m)) for m in modules}
    for m in modules:
        state = vars(copies[m])
        state.update(vars(m))
        for kind in ("_parameters", "_buffers", "_modules"):
            held = state[kind].items()
            state[kind] = {name: copies.get(x, x) for name, x in held}
    replica: nn.Module = copies[module]
    return replica


def _as_current(device: torch.device) -> AbstractContextManager[Any]:
    """Return a context in which "cuda" or "sim" alone means this device."""
    if not has_streams(device):
        return nullcontext()
    current: AbstractContextManager[Any]
    current = torch.get_device_module(device).device(device)
    return current


def _name_as_held(
    wrapper: nn.Module, state_dict: dict[str, Any], prefix: str, *_: Any
) -> None:
    """Put "module." before the names of a state dict that is about to load.

    The wrapper's state dict has the names of the module within. If the
    wrapper is part of another module, PyTorch looks for its own names.
    """
    for name in [name for name in state_dict if name.startswith(prefix)]:
        held = f"{prefix}module.{name.removeprefix(prefix)}"
        state_dict[held] = state_dict.pop(name)
