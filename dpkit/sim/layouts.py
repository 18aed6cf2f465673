"""A simulated device holds dense tensors, and refuses all others.

Sparse and nested tensors keep their numbers in ways that a tensor which
stands for another cannot tell PyTorch of, and PyTorch's own words for that
are of its inside.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import torch
from torch.utils._pytree import tree_leaves

# Where PyTorch looks for the kernels of each kind of tensor, on a backend
# from outside.
KEYS = {
    "nested": "NestedTensorPrivateUse1",
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
    """Refuse a tensor that is not dense.

    Args:
        tensor: It holds the numbers.
        device: The simulated device that it is to be on.

    Raises:
        NotImplementedError: it is nested, sparse or of another layout.
    """
    if tensor.is_nested:
        raise not_dense("nested", device)
    if tensor.layout is not torch.strided:
        kind = (
            str(tensor.layout).removeprefix("torch._").removeprefix("torch.")
        )
        raise not_dense(kind, device)


def simulated_in(args: Any, kwargs: dict[str, Any]) -> torch.device | None:
    """Return the first simulated device among arguments, if there is one."""
    named = kwargs.get("device")
    found = [torch.device(named)] if isinstance(named, str) else []
    for leaf in tree_leaves((args, kwargs)):
        if isinstance(leaf, torch.device):
            found.append(leaf)
        elif isinstance(leaf, torch.Tensor):
            found.append(leaf.device)
    return next((device for device in found if device.type == "sim"), None)


def refusal(kind: str) -> Callable[..., NoReturn]:
    """Return what stands for all kernels of a kind of tensor."""

    def refuse(func: Any, *args: Any, **kwargs: Any) -> NoReturn:
        raise not_dense(kind, simulated_in(args, kwargs))

    return refuse


def refusing_nested(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that makes nested tensors elsewhere alone."""

    def make(*args: Any, **kwargs: Any) -> Any:
        device = simulated_in(args, kwargs)
        if device is not None:
            raise not_dense("nested", device)
        return original(*args, **kwargs)

    return make
