"""Moving a module keeps its parameters the same objects, as on CUDA.

An optimizer that was made before, and weights that two layers share, then go
along. PyTorch assigns to the ``data`` of each parameter what it has become::

    parameter.data = parameter.to("sim:1")

It asks before whether the one kind of tensor can take the place of the other.
A plain tensor and a simulated one can. PyTorch's assignment changes only the
inside of a tensor, which C++ knows; here the inside, the class and the
attributes are exchanged for those of a new tensor. A graph knows the inside
that a parameter had: when the parameter comes straight back, it gets that one
again, so that backward finds it there. So it is where FSDP puts its parameters
together on the CPU (``summon_full_params``), between forward and backward.
"""

import weakref
from collections.abc import Callable, MutableMapping
from functools import partial, wraps
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge
from torch.nn.modules import module
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter
from torch.utils.weak import TensorWeakRef, WeakTensorKeyDictionary

from dpkit.sim.tensors.behaviour import SIM_CLASSES, simulated_class
from dpkit.sim.tensors.tensor import SimTensor

_data: Any = torch._C.TensorBase.data
_can_replace: Callable[[Tensor, Tensor], bool] = (
    torch._has_compatible_shallow_copy_type
)
_has_inside: Callable[[object], bool] = vars(module)[
    "is_traceable_wrapper_subclass"
]
_HOOKS = ("_backward_hooks", "_post_accumulate_grad_hooks")
# Attributes of simulated tensors.
_OURS = ("arrival", "awaited", "backing", "_is_param")
# For a tensor that has moved: one with the inside that it had, while a graph
# holds that.
_left_behind: MutableMapping[Tensor, TensorWeakRef] = WeakTensorKeyDictionary()


def _get_data(tensor: Tensor) -> Tensor:
    return cast(Tensor, _data.__get__(tensor))


def _set_data(tensor: Tensor, value: Tensor) -> None:
    # tensor  value
    # cpu     cpu     PyTorch's own assignment
    # sim:0   sim:0   the same, and the backing
    # sim:0   sim:1   the same, after the gradient has moved
    # cpu     sim:1   another inside and class; so with sim:1 and cpu, and
    #                 where one of them is an inference tensor
    ours = [isinstance(x, SimTensor) for x in (tensor, value)]
    if not any(ours):
        _data.__set__(tensor, value)
    elif not all(ours) or _is_inference(tensor) != _is_inference(value):
        _exchange(tensor, value)
    else:
        if tensor.device != value.device:
            _move_gradient(tensor, value.device)
        _data.__set__(tensor, value)
        tensor.backing = value.backing.detach()  # type: ignore[attr-defined]


# The stand-in for ``tensor.data``: the tensor without its history.
data = property(_get_data, _set_data)


def _is_inference(tensor: Tensor) -> bool:
    # Tensors without a shape yet refuse the plain question.
    with torch._C.DisableTorchFunctionSubclass():
        return tensor.is_inference()


def _exchange(tensor: Tensor, value: Tensor) -> None:
    """Make ``tensor``, the same object, hold what ``value`` holds."""
    new = _known_to_a_graph(tensor, value)
    if new is None:
        new = _made_of(value, tensor)
    new.requires_grad = tensor.requires_grad
    gradient = _move_gradient(tensor, value.device)
    if gradient is not None:
        _give_gradient(new, gradient)
    torch.clear_autocast_cache()  # it would hold on to what was inside
    torch._C._swap_tensor_impl(tensor, new)
    tensor.__class__, new.__class__ = type(new), type(tensor)
    tensor.__dict__, new.__dict__ = vars(new), vars(tensor)
    for name in _HOOKS:  # the inside knows them, too
        setattr(tensor, name, getattr(tensor, name))
    _left_behind.pop(tensor, None)
    if new._use_count() > 1:  # else a weak reference, which forbids swapping
        _left_behind[tensor] = TensorWeakRef(new)


def _known_to_a_graph(tensor: Tensor, value: Tensor) -> Tensor | None:
    """Return the tensor with the inside that a graph knows, if one comes back.

    It has the values of ``value`` now. None: ``tensor`` does not come straight
    back to the device at which it left that inside.
    """
    reference = _left_behind.get(tensor)
    left: Tensor | None = reference() if reference else None
    if left is None or left.device != value.device:
        return None
    left.grad = None
    _set_data(left, value)
    others = {k: v for k, v in vars(tensor).items() if k not in _OURS}
    vars(left).update(others)
    return left


def _made_of(value: Tensor, like: Tensor) -> Tensor:
    """Return a tensor with the values of ``value``, the rest as ``like``."""
    new: Tensor
    is_parameter = isinstance(like, nn.Parameter)
    if isinstance(value, SimTensor):
        kind = simulated_class(type(like), value.device)
        new = SimTensor.__new__(kind, value.backing.detach(), value.device)
        if is_parameter:
            new._is_param = True
    else:
        new = value.detach()
        on_cpu = {sim: kind for kind, sim in SIM_CLASSES.items()}
        on_cpu[SimTensor] = nn.Parameter if is_parameter else Tensor
        new.__class__ = on_cpu[type(like)]
    others = {k: v for k, v in vars(like).items() if k not in _OURS}
    vars(new).update(others)
    return new


def _move_gradient(tensor: Tensor, device: torch.device) -> Tensor | None:
    """Move and return the gradient of a leaf that goes to ``device``."""
    if not tensor.is_leaf:
        raise RuntimeError(
            "the data of a result cannot go to another device (from: "
            f"{tensor.device}, to: {device}); assign to that of a leaf"
        )
    in_a_graph = tensor._use_count() > 1 and not tensor.is_inference()
    if tensor.requires_grad and in_a_graph:
        # Backward of that graph would bring gradients of the old device.
        check = partial(
            _check_not_moved,
            weakref.ref(tensor),
            (tensor.device, tensor._cdata),
        )
        with torch.inference_mode(False):
            get_gradient_edge(tensor).node.register_prehook(check)
    gradient = tensor.grad
    if gradient is not None:  # on another device it would be refused
        gradient.data = gradient.detach().to(device)
    return gradient


def _give_gradient(tensor: Tensor, gradient: Tensor) -> None:
    """Give a tensor a gradient that may have another shape or dtype.

    FSDP's flat parameter is whole at times, while its gradient is a shard.
    """
    kept = gradient.detach()
    gradient.data = tensor.detach()  # for a moment, or it would be refused
    tensor.grad = gradient
    gradient.data = kept


def _check_not_moved(
    moved: weakref.ref[Tensor],
    place: tuple[torch.device, int],
    gradients: Any,
) -> None:
    """Raise RuntimeError for the gradient of a tensor that has moved.

    It may lie where it lay, and have another inside than the graph knows.
    """
    tensor = moved()
    if tensor is not None and (tensor.device, tensor._cdata) != place:
        raise RuntimeError(
            "a parameter has moved since the forward pass (then: "
            f"{place[0]}, now: {tensor.device}); run the forward pass again"
        )


def fits(*tensors: Tensor) -> bool:
    """Return whether ``first.data = second`` is allowed."""

    def on_cpu(x: Tensor) -> Tensor:
        return torch.empty(0, device="cpu") if isinstance(x, SimTensor) else x

    return _can_replace(*map(on_cpu, tensors))


def has_to_be_opened(tensor: Tensor) -> bool:
    """Return whether torch has to open a tensor: never a simulated one.

    Else a module would swap it, and FSDP would send the plain one inside.
    """
    return not isinstance(tensor, SimTensor) and _has_inside(tensor)


def moving_whole(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a ``Module._apply`` that moves all of a module, or nothing."""

    @wraps(original)
    def apply(
        self: nn.Module, fn: Callable[..., Any], recurse: bool = True
    ) -> Any:
        for p in self.parameters():
            if type(p) not in SIM_CLASSES and not _has_inside(p):
                moved = fn(torch.empty(0, device=p.device))
                if isinstance(moved, SimTensor):  # refuse it before others go
                    simulated_class(type(p), moved.device)
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
