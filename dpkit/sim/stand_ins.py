"""A function that stands in for one of PyTorch's, and equals it.

Libraries keep sets of PyTorch's functions, such as torchvision of those that
return an image, and look up in them what PyTorch says is being called. So it
must not matter which of the two is in the set, and which is called. Scripted
code (``torch.jit``) goes by a table of identities, and is told.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from types import MethodType
from typing import Any

import torch


class StandIn:
    """A callable that equals the function that it stands in for.

    Args:
        original: A function of PyTorch, or a method of its tensors.
        call: What is called in its place.

    Example:
        >>> import torch
        >>> from dpkit.sim.stand_ins import StandIn
        >>> twice = StandIn(torch.ones, lambda n: 2 * torch.ones(n))
        >>> twice(3), twice == torch.ones, torch.ones in {twice}
        (tensor([2., 2., 2.]), True, True)
    """

    def __init__(
        self, original: Callable[..., Any], call: Callable[..., Any]
    ) -> None:
        update_wrapper(self, original)
        self.original, self.call = original, update_wrapper(call, original)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: D102
        return self.call(*args, **kwargs)

    def __get__(self, instance: object, owner: object = None) -> Any:
        return self if instance is None else MethodType(self.call, instance)

    def __eq__(self, other: object) -> bool:
        return other is self or bool(self.original == other)

    def __hash__(self) -> int:
        return hash(self.original)

    def __repr__(self) -> str:
        return repr(self.original)

    def __reduce__(self) -> Any:
        """Pickle by name: that of a method is looked up in its class."""
        if isinstance(self.original, StandIn):
            return self.original.__reduce__()
        name = self.__name__  # type: ignore[attr-defined]
        is_method = hasattr(self.original, "__objclass__")
        return (getattr, (torch.Tensor, name)) if is_method else name
