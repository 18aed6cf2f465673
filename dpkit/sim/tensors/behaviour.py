"""What a simulated tensor is in Python: made, printed, copied, pickled, read.

A simulated tensor is a ``SimTensor``, also where it is a parameter: then it
has a mark, by which ``isinstance(p, nn.Parameter)`` knows it. PyTorch's
parameters and buffers without shape, those of lazy layers, stay such.

PyTorch's methods of these names reach into the memory of a tensor, which a
simulated one has only through its backing.
"""

import copy
from collections import OrderedDict
from typing import Any, Self, cast

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch._tensor_str import _add_suffixes, _tensor_str

from dpkit.sim.devices import names as device_names
from dpkit.sim.devices.configuration import simulation
from dpkit.sim.memory.small_integers import (
    deepcopy_backing,
    has_values,
    values_of,
)
from dpkit.sim.operators import operations
from dpkit.sim.operators.refusals import check_dense
from dpkit.sim.tensors.charge import charge_read

PRINTED = 1000  # torch shortens what has more values
SIM_CLASSES: dict[type, Any] = {}  # class on the CPU -> on a simulated device
_base: Any = torch.Tensor  # its own grad


def simulated_class(kind: type, device: torch.device) -> Any:
    """Return the class that a tensor of class ``kind`` gets on ``device``."""
    if kind in SIM_CLASSES.values():
        return kind
    if kind not in SIM_CLASSES:
        raise NotImplementedError(
            "a simulated tensor has a class of its own, and takes no other "
            f"(class: {kind.__name__}, device: {device}); use torch.Tensor or "
            "nn.Parameter"
        )
    return SIM_CLASSES[kind]


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """Return the plain tensor that holds the values of ``tensor``."""
    return tensor.backing if isinstance(tensor, Behaviour) else tensor


class Behaviour(torch.Tensor):
    """A tensor that stands for another, its ``backing``, on a device."""

    backing: torch.Tensor
    owner: int  # the number of the memory in which it is counted

    @staticmethod
    def __new__(  # noqa: D102
        cls: "type[Behaviour]", backing: torch.Tensor, device: torch.device
    ) -> "Behaviour":
        if type(backing) is FakeTensor:
            raise NotImplementedError(
                "torch.compile does not know simulated devices (device: "
                f"{device}); run without it"
            )
        if backing.is_quantized:  # an operator may make one of a dense one
            check_dense(backing, device)
        tensor = torch.Tensor._make_wrapper_subclass(
            cls,
            backing.shape,
            strides=backing.stride(),
            storage_offset=backing.storage_offset(),
            dtype=backing.dtype,
            device=device,
        )
        tensor.backing = backing
        tensor.owner = simulation.memory.number
        simulation.memory.hold(backing, device.index)
        # Marks of values still to be conjugated or negated: torch reads them
        # before an operation comes to __torch_dispatch__, and not inside.
        if backing.is_conj():
            torch._C._set_conj(tensor, True)
        if backing.is_neg():
            torch._C._set_neg(tensor, True)
        return tensor

    def follow_backing(self) -> None:
        """Take over the backing's shape, where an operation has changed it."""
        backing = self.backing
        if self.shape == backing.shape and self.stride() == backing.stride():
            return
        try:
            simulation.memory.resize(backing)
        except torch.OutOfMemoryError:
            storage = backing.untyped_storage()
            offset = self.storage_offset()
            backing.set_(storage, offset, self.shape, self.stride())
            raise
        with torch.inference_mode(self.is_inference()):  # to be of its kind
            reshaped = self._over(backing, SIM_CLASSES[torch.Tensor])
        torch._functionalize_unsafe_set(reshaped, self)
        self.data = reshaped

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        start = "tensor("
        values = "..."
        freed = self.numel() and not self.backing.untyped_storage().nbytes()
        known = None if freed else values_of(self.backing)
        if known is not None:
            shown = min(self.numel(), PRINTED) * self.itemsize
            charge_read(self, shown)
            values = _tensor_str(known, len(start))
        suffixes = self._suffixes() + ["memory freed"] * bool(freed)
        text = _add_suffixes(start + values, suffixes, len(start), False)
        return f"Parameter containing:\n{text}" if self._is_param else text

    def _suffixes(self) -> list[str]:
        """Return what torch prints after the values."""
        suffixes = [f"device='{device_names.shown(self.device)}'"]
        default = torch.get_default_dtype()
        obvious = [default, default.to_complex(), torch.int64, torch.bool]
        is_shown = has_values(self.backing)
        if self.numel() == 0 or not is_shown:
            obvious = [default]
            if self.dim() != 1 or not is_shown:
                suffixes.append(f"size={tuple(self.shape)}")
        if self.dtype not in obvious:
            suffixes.append(f"dtype={self.dtype}")
        if self.grad_fn is not None:
            suffixes.append(f"grad_fn=<{type(self.grad_fn).__name__}>")
        elif self.requires_grad:
            suffixes.append("requires_grad=True")
        return suffixes

    @property
    def _is_param(self) -> bool:
        """Return whether this is a module's parameter; torch sets it."""
        return bool(self.__dict__.get("_is_param"))

    @_is_param.setter
    def _is_param(self, value: bool) -> None:
        self.__dict__["_is_param"] = value

    @property
    def grad(self) -> torch.Tensor | None:
        """The gradient; refused if backward left it on another device."""
        grad: torch.Tensor | None = _base.grad.__get__(self)
        if grad is not None and grad.device != self.device:
            raise RuntimeError(
                "backward gave an invalid gradient: expected device "
                f"{self.device} but got {grad.device}"
            )
        return grad

    @grad.setter
    def grad(self, value: torch.Tensor | None) -> None:
        _base.grad.__set__(self, value)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle as values and the name of the device, without storage."""
        operations.require_values(self)
        rebuild = torch._utils._rebuild_device_tensor_from_cpu_tensor
        where = str(device_names.shown(self.device))
        data = (self.detach().cpu(), self.dtype, where)
        if not self._is_param:
            return rebuild, (*data, self.requires_grad)
        hooks: OrderedDict[int, Any] = OrderedDict()
        parts = (self.detach(), self.requires_grad, hooks)
        return torch._utils._rebuild_parameter, parts

    def _over(self, backing: torch.Tensor, kind: type) -> Self:
        return cast(Self, Behaviour.__new__(kind, backing, self.device))

    def __copy__(self) -> Self:
        """Return another tensor in the same memory, without a gradient."""
        new = self._over(self.backing.detach(), type(self))
        vars(new).update(self._attributes())
        new.requires_grad = self.requires_grad
        return new

    def _attributes(self) -> dict[str, Any]:
        # What a copy of this tensor has besides its values.
        apart = ("arrival", "awaited", "backing", "owner")
        return {k: v for k, v in vars(self).items() if k not in apart}

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Copy the backing, so that shared storage stays shared."""
        if id(self) in memo:
            return cast(Self, memo[id(self)])
        if not self.is_leaf:
            raise RuntimeError(
                "Only Tensors created explicitly by the user (graph leaves) "
                "support the deepcopy protocol at the moment"
            )
        new = self._over(deepcopy_backing(self.backing, memo), type(self))
        vars(new).update(copy.deepcopy(self._attributes(), memo))
        new.requires_grad = self.requires_grad
        if not self._is_param:  # torch's parameters leave theirs behind
            new.grad = copy.deepcopy(self.grad, memo)
        memo[id(self)] = new
        return new

    def as_subclass(self, cls: type) -> Any:
        """Return this tensor as one of another class, if that is possible."""
        kind = simulated_class(cls, self.device)
        if kind is type(self):
            return self
        return self._over(self.backing.detach(), kind)

    def numpy(self, *, force: bool = False) -> Any:
        """Refuse, as CUDA tensors do, unless ``force`` asks for a copy."""
        if force:
            operations.require_values(self)
            return self.detach().cpu().numpy()
        raise TypeError(
            f"can't convert {device_names.shown(self.device)} device type "
            "tensor to numpy. Use Tensor.cpu() to copy the tensor to host "
            "memory first."
        )

    def __format__(self, spec: str) -> str:
        """Format a number as a number, anything else as it prints."""
        return format(self.item() if self.dim() == 0 else repr(self), spec)

    def new_tensor(  # type: ignore[override]
        self, data: Any, **options: Any
    ) -> torch.Tensor:
        """Make a tensor of ``data``, on this device and of this dtype."""
        options = {"dtype": self.dtype, "device": self.device, **options}
        return torch.tensor(data, **options)

    def new(  # type: ignore[override]
        self, *sizes_or_data: Any, **options: Any
    ) -> torch.Tensor:
        """Make a tensor of sizes, ``new(2, 3)``, or numbers, ``new([2])``."""
        first = sizes_or_data[0] if sizes_or_data else 0
        if isinstance(first, torch.Tensor):
            same_memory: torch.Tensor = _base.new(self, first, **options)
            return same_memory
        if isinstance(first, (int, torch.Size)):
            return self.new_empty(*(sizes_or_data or (0,)), **options)
        return self.new_tensor(first, **options)

    def tolist(self) -> Any:
        """Return the values as nested lists."""
        operations.require_values(self)
        return self.detach().cpu().tolist()

    def record_stream(self, stream: Any) -> None:
        """Keep its memory until ``stream`` is done with it.

        Memory is given back in the order of issue in any case. A trace that
        looks for races takes note of it.
        """
        if simulation.races is not None:
            simulation.races.record_stream(
                self, (stream.device_index, stream.stream_id)
            )

    def data_ptr(self) -> int:
        """Return the address of the first number."""
        return self.backing.data_ptr()

    def untyped_storage(self) -> torch.UntypedStorage:
        """Return the storage that holds the values."""
        return self.backing.untyped_storage()
