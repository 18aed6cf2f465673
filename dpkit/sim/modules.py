"""Moving a module keeps its parameters the same objects, as on CUDA.

An optimizer that was made before, and weights that two layers share, then go
along. PyTorch assigns to the ``data`` of each parameter what it has become::

    parameter.data = parameter.to("sim:1")

and asks before whether the one kind of tensor can take the place of the other.
A plain tensor and a simulated one can, but not by the assignment of PyTorch,
which changes what is inside the tensor: the inside and the class are
exchanged for those of a new one.

Layers that learn their shape from the first batch, such as ``nn.LazyLinear``,
have tensors without numbers until then, of a class of their own. On a
simulated device these are simulated tensors as well.
"""

import threading
import weakref
from collections.abc import Callable
from functools import partial, wraps
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge
from torch.nn.modules import module
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from dpkit.sim.behaviour import SIM_CLASSES, simulated_class
from dpkit.sim.tensor import SimTensor

_data: Any = torch._C.TensorBase.data
_can_replace: Callable[[Tensor, Tensor], bool] = (
    torch._has_compatible_shallow_copy_type
)
_has_inside: Callable[[object], bool] = vars(module)[
    "is_traceable_wrapper_subclass"
]
_HOOKS = ("_backward_hooks", "_post_accumulate_grad_hooks")
_OURS = ("arrival", "backing", "_is_param")  # attributes of simulated tensors


def _get_data(tensor: Tensor) -> Tensor:
    """Return ``tensor.data``: the tensor without its history."""
    return cast(Tensor, _data.__get__(tensor))


def _set_data(tensor: Tensor, value: Tensor) -> None:
    """Stand in for the assignment to ``tensor.data``."""
    ours = [isinstance(x, SimTensor) for x in (tensor, value)]
    if not any(ours):
        _data.__set__(tensor, value)
        return
    if not all(ours) or _is_inference(tensor) != _is_inference(value):
        _become(tensor, value)
        return
    if tensor.device != value.device:
        _leave(tensor, value.device)
    _data.__set__(tensor, value)
    tensor.backing = value.backing.detach()  # type: ignore[attr-defined]


def _is_inference(tensor: Tensor) -> bool:
    # Tensors without a shape yet refuse the plain question.
    with torch._C.DisableTorchFunctionSubclass():
        return tensor.is_inference()


def _become(tensor: Tensor, value: Tensor) -> None:
    """Make ``tensor``, the same object, hold what ``value`` holds."""
    # One of the two is simulated and the other is plain, or one of them is of
    # inference mode.
    new = _in_the_place_of(tensor, value)
    new.requires_grad = tensor.requires_grad
    new.grad = _leave(tensor, value.device)
    torch.clear_autocast_cache()  # it would hold on to what was inside
    torch._C._swap_tensor_impl(tensor, new)
    tensor.__class__, new.__class__ = type(new), type(tensor)
    tensor.__dict__, new.__dict__ = vars(new), vars(tensor)
    for name in _HOOKS:  # the inside knows them, too
        setattr(tensor, name, getattr(tensor, name))


def _in_the_place_of(tensor: Tensor, value: Tensor) -> Tensor:
    """Return a tensor with the numbers of ``value``, else like ``tensor``."""
    new: Tensor
    if isinstance(value, SimTensor):
        kind = simulated_class(type(tensor), value.device)
        new = SimTensor.__new__(kind, value.backing.detach(), value.device)
        if isinstance(tensor, nn.Parameter):
            new._is_param = True
    else:
        new = value.detach()
        new.__class__ = _plain_class(tensor)
    others = {k: v for k, v in vars(tensor).items() if k not in _OURS}
    vars(new).update(others)
    return new


def _plain_class(tensor: Tensor) -> type:
    """Return the class that a simulated tensor gets on the CPU."""
    if type(tensor) is SimTensor:
        return nn.Parameter if isinstance(tensor, nn.Parameter) else Tensor
    return next(k for k, sim in SIM_CLASSES.items() if sim is type(tensor))


def _leave(tensor: Tensor, device: torch.device) -> Tensor | None:
    """Move ``tensor`` to ``device``; return its moved gradient."""
    if not tensor.is_leaf:
        raise RuntimeError(
            "the data of a result cannot go to another device (from: "
            f"{tensor.device}, to: {device}); assign to that of a leaf"
        )
    in_a_graph = tensor._use_count() > 1 and not tensor.is_inference()
    if tensor.requires_grad and in_a_graph:
        check = partial(_check_home, weakref.ref(tensor), tensor.device)
        with torch.inference_mode(False):
            get_gradient_edge(tensor).node.register_prehook(check)
    gradient = tensor.grad
    if gradient is not None:  # on another device it would be refused
        gradient.data = gradient.detach().to(device)
    return gradient


def _check_home(
    moved: weakref.ref[Tensor], device: torch.device, gradients: Any
) -> None:
    """Refuse gradients for a tensor that is not on ``device`` any more."""
    tensor = moved()
    if tensor is not None and tensor.device != device:
        raise RuntimeError(
            "a parameter has moved since the forward pass (then: "
            f"{device}, now: {tensor.device}); run the forward pass again"
        )


def fits(*tensors: Tensor) -> bool:
    """Return whether the second may be assigned to the data of the first.

    A simulated tensor counts as one of the CPU, as do those of CUDA.
    """
    ours = [isinstance(tensor, SimTensor) for tensor in tensors]
    if not any(ours):
        return _can_replace(*tensors)
    on_cpu = torch.empty(0, device="cpu")
    pair = zip(tensors, ours, strict=True)
    return _can_replace(*(on_cpu if is_sim else x for x, is_sim in pair))


def has_to_be_swapped(tensor: Tensor) -> bool:
    """Return whether a module must not assign ``tensor`` to its data."""
    return not isinstance(tensor, SimTensor) and _has_inside(tensor)


# What stands for ``tensor.data``.
data = property(_get_data, _set_data)


class _Tried(threading.local):
    """What a module of this thread is being moved by."""

    function: Callable[..., Any] | None = None


_tried = _Tried()


def _check_class(tensor: Tensor, moved: Tensor) -> None:
    """Refuse a class of which there is none on the device of ``moved``."""
    if isinstance(moved, SimTensor):
        simulated_class(type(tensor), moved.device)


def moving_whole(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a ``Module._apply`` that moves all of a module, or nothing."""
    # A parameter of a class that is refused on simulated devices is tried
    # before any other has moved.

    @wraps(original)
    def apply(
        self: nn.Module, fn: Callable[..., Any], recurse: bool = True
    ) -> Any:
        if _tried.function is not fn:  # the same in all parts of a module
            _tried.function = fn
            for p in self.parameters():
                if type(p) not in SIM_CLASSES and not isinstance(p, SimTensor):
                    _check_class(p, fn(p))
        return original(self, fn, recurse)

    return apply


class SimUninitializedParameter(UninitializedParameter, SimTensor):
    """A parameter on a simulated device whose shape is not known yet."""

    cls_to_become = SimTensor

    def __reduce_ex__(self, protocol: Any) -> Any:
        return UninitializedParameter, (self.requires_grad,)


class SimUninitializedBuffer(UninitializedBuffer, SimTensor):
    """A buffer on a simulated device whose shape is not known yet."""

    cls_to_become = SimTensor

    @classmethod
    def __torch_function__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Keep the class in what ``func`` makes, as PyTorch's own does."""
        out = super().__torch_function__(func, types, args, kwargs)
        is_tensor = isinstance(out, Tensor)
        return out.as_subclass(UninitializedBuffer) if is_tensor else out

    def __reduce_ex__(self, protocol: Any) -> Any:
        return UninitializedBuffer, (self.requires_grad,)


SIM_CLASSES[UninitializedParameter] = SimUninitializedParameter
SIM_CLASSES[UninitializedBuffer] = SimUninitializedBuffer


def making_uninitialized(
    kind: Any, make: Callable[..., Any]
) -> Callable[..., Any]:
    """Return a ``__new__`` for ``kind``, which ``make`` is elsewhere."""

    def new(cls: type[Tensor], *args: Any, **options: Any) -> Any:
        names = ("requires_grad", "device", "dtype", "persistent")
        options |= zip(names, args)
        dtype = options.get("dtype")
        nothing = torch.empty(0, device=options.get("device"), dtype=dtype)
        if not isinstance(nothing, SimTensor):
            return make(cls, **options)
        made = make(kind, **{**options, "device": "cpu"})
        made.data = nothing
        return made

    return new
