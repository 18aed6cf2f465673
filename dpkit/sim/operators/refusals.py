"""What simulated devices refuse, in words that say what to use instead.

- Tensors that are not dense: a tensor that stands for another cannot show
  PyTorch the values of sparse and nested ones, or the scales of quantized
  ones.
- Operators of quantized weights.
- ``mixed_precision`` of ``DistributedDataParallel``, whose C++ changes the
  type of its buckets in place; and a module that two ranks wrap, for whose
  gradients it would wait.
"""

import threading
from collections.abc import Callable
from typing import Any, NoReturn

import torch
from torch import nn
from torch._ops import OpOverload
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary

from dpkit.arguments import layout_of
from dpkit.sim.streams import sending

# Where PyTorch looks for the kernels of each kind of tensor, on a backend
# from outside.
LAYOUT_KEYS = {
    "nested": "NestedTensorPrivateUse1",
    "quantized": "QuantizedPrivateUse1",
    "sparse": "SparsePrivateUse1",
    "sparse in rows": "SparseCsrPrivateUse1",
}
NESTED = (
    "as_nested_tensor",
    "narrow",
    "nested_tensor",
    "nested_tensor_from_jagged",
)


def not_dense(kind: str, device: object) -> NotImplementedError:
    """Return the error for a tensor that is not dense."""
    return NotImplementedError(
        "a simulated device holds dense tensors alone (kind of tensor: "
        f"{kind}, device: {device}); leave this one on the CPU, or make it "
        "dense"
    )


def check_dense(tensor: torch.Tensor, device: torch.device) -> None:
    """Refuse a tensor that is not dense; it is to be on ``device``."""
    if layout := layout_of(tensor):
        raise not_dense(layout, device)


def refusing_quantized(func: OpOverload) -> Callable[..., NoReturn]:
    """Return what stands for an operator of quantized weights.

    The CPU's kernel would take a simulated tensor, whose values lie there.
    """

    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(
            "quantized weights are not simulated: their operators have "
            f"kernels for the CPU (operator: {func.name()}); leave the module "
            "and its inputs on the CPU"
        )

    return refuse


def _simulated_in(args: Any, kwargs: dict[str, Any]) -> torch.device | None:
    """Return the first simulated device among arguments, if there is one."""
    named = kwargs.get("device")
    found = [torch.device(named)] if isinstance(named, str) else []
    for leaf in tree_leaves((args, kwargs)):
        found.append(getattr(leaf, "device", leaf))
    found = [x for x in found if isinstance(x, torch.device)]
    return next((device for device in found if device.type == "sim"), None)


def refusing_layout(kind: str) -> Callable[..., NoReturn]:
    """Return what stands for all kernels of a kind of tensor."""

    def refuse(func: Any, *args: Any, **kwargs: Any) -> NoReturn:
        raise not_dense(kind, _simulated_in(args, kwargs))

    return refuse


def refusing_nested(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that makes nested tensors elsewhere alone."""

    def make(*args: Any, **kwargs: Any) -> Any:
        device = _simulated_in(args, kwargs)
        if device is not None:
            raise not_dense("nested", device)
        return original(*args, **kwargs)

    return make


def refusing_ddp(original: Callable[..., None]) -> Callable[..., None]:
    """Return an ``__init__`` of PyTorch's DDP that refuses some settings."""

    def init(self: Any, module: nn.Module, *args: Any, **kwargs: Any) -> None:
        if any(p.device.type == "sim" for p in module.parameters()):
            _refuse_settings(kwargs)
        _refuse_shared(module)
        original(self, module, *args, **kwargs)

    return init


def _refuse_settings(given: dict[str, Any]) -> None:
    """Refuse what DDP's C++ cannot do on simulated devices."""
    if given.get("mixed_precision") is not None:
        raise NotImplementedError(
            "DistributedDataParallel on simulated devices computes in the "
            "dtype of its parameters (mixed_precision: "
            f"{given['mixed_precision']}); torch.autocast, or FSDP2's "
            "MixedPrecisionPolicy, computes in another"
        )


_wrapped = WeakIdKeyDictionary()  # parameter -> thread of the rank


def _refuse_shared(module: nn.Module) -> None:
    """Refuse a module that another rank has wrapped."""
    if sending.thread.rank is None:
        return
    this = threading.current_thread()
    for p in module.parameters():
        first = _wrapped.get(p)
        if first not in (None, this) and first.is_alive():
            raise RuntimeError(
                "two ranks wrap one module; make it inside the function that "
                f"they run ({first.name}, {this.name})"
            )
        _wrapped[p] = this
