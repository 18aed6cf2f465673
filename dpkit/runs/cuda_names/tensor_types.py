"""``torch.cuda.FloatTensor`` and the like, which older programs use.

They are called to make a tensor, given to ``x.type(…)``, compared with
``isinstance``, and made the type of all new tensors.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch

from dpkit.runs.cuda_names.names import is_inside
from dpkit.sim.devices import device_of

TENSOR_DTYPES = {
    "BFloat16Tensor": torch.bfloat16,
    "BoolTensor": torch.bool,
    "ByteTensor": torch.uint8,
    "CharTensor": torch.int8,
    "DoubleTensor": torch.float64,
    "FloatTensor": torch.float32,
    "HalfTensor": torch.float16,
    "IntTensor": torch.int32,
    "LongTensor": torch.int64,
    "ShortTensor": torch.int16,
}


class CudaTensorType:
    """The type of tensors of one dtype on a CUDA device.

    Args:
        name: Its name in ``torch.cuda``.
    """

    is_cuda = True

    def __init__(self, name: str) -> None:
        self.__name__ = name
        self.dtype = TENSOR_DTYPES[name]

    def __call__(self, *sizes_or_data: Any) -> torch.Tensor:
        """Make a tensor of sizes, ``(2, 3)``, or of numbers, ``([2, 3])``."""
        empty = torch.empty(0, dtype=self.dtype, device="sim")
        made: torch.Tensor = empty.new(*sizes_or_data)
        return made

    def __instancecheck__(self, instance: object) -> bool:
        return (
            isinstance(instance, torch.Tensor)
            and device_of(instance).type == "sim"
            and instance.dtype == self.dtype
        )

    def __repr__(self) -> str:
        return f"<class 'torch.cuda.{self.__name__}'>"


TYPES = {name: CudaTensorType(name) for name in TENSOR_DTYPES}


def _type_of(named: Any) -> CudaTensorType | None:
    """Return the type that is meant, if it is one of CUDA's."""
    if isinstance(named, str):
        return TYPES.get(named.removeprefix("torch.cuda."))
    return named if isinstance(named, CudaTensorType) else None


def typed(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a ``Tensor.type`` that knows these types.

    Without an argument it returns the name of a type.
    """

    def call(
        self: torch.Tensor, dtype: Any = None, *args: Any, **kwargs: Any
    ) -> Any:
        if dtype is None:
            name = str(original(self))
            in_cuda = name.replace("torch.sim.", "torch.cuda.")
            return name if is_inside() else in_cuda
        kind = _type_of(dtype)
        if kind is None:
            return original(self, dtype, *args, **kwargs)
        own = device_of(self)
        return self.to(own if own.type == "sim" else "sim", kind.dtype)

    return call


def set_default_type(original: Callable[..., None]) -> Callable[..., None]:
    """Return a ``set_default_tensor_type`` that knows these types."""

    @wraps(original)
    def call(t: Any, /) -> None:
        kind = _type_of(t)
        if kind is None:
            torch.set_default_device(None)
            original(t)
        else:
            torch.set_default_dtype(kind.dtype)
            torch.set_default_device("sim")

    return call
