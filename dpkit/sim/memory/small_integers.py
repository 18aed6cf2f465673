"""The values of small integer tensors, on a machine that has no others.

With ``backing="meta"`` the backing of a tensor lies on torch's device "meta":
it has a shape and no values. But a few values decide how a program goes on,
and these are integers. DDP compares how many parameters the ranks have, and
the stages of a pipeline vote. A router of experts reads how many rows it
sends. So the memory of a small tensor of integers or booleans has a copy of
its values on the CPU, for all tensors that view it::

    x = torch.tensor([3, 1, 2], device="sim:0")    3 1 2
    y = x[1:]                                      3 1 2, of which y is 1 2
    y += 4                                         3 5 6
    x += scores.argmax()                           lost: scores has none
    y.tolist()                                     refused
    x.copy_(torch.tensor([7, 8, 9]))               7 8 9: given
    y.tolist()                                     [8, 9]

Values are lost where something is written that has none, and known again once
all of the memory is overwritten with values.

The functions take plain tensors, such as the backing of a simulated one.
"""

import copy
from typing import Any, cast

import torch
from torch import Tensor

# An operation on so many integers takes 30 µs, about as long as it takes to
# do the rest that an operation of a simulated device needs.
MOST_INTEGERS = 100_000
_KEPT = {
    torch.bool,
    *(torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.uint8, torch.uint16, torch.uint32, torch.uint64),
}
_empty = torch.ops.aten.empty.memory_format  # not seen by modes of the program
_ATTRIBUTE = "dpkit_values"  # the attribute of a storage: another on the CPU


def is_small_integer(tensor: Tensor) -> bool:
    """Return whether a tensor is of a type and size that keep values."""
    return tensor.dtype in _KEPT and tensor.numel() <= MOST_INTEGERS


def has_values(tensor: Tensor) -> bool:
    """Return whether the values of a tensor are known."""
    if not tensor.is_meta:
        return True
    storage = tensor.untyped_storage()
    kept = vars(storage).get(_ATTRIBUTE)
    # Memory that was resized since has other values, or none.
    same = kept is not None and kept.nbytes() == storage.nbytes()
    return same and not tensor.is_conj() and not tensor.is_neg()


def values_of(tensor: Tensor) -> Tensor | None:
    """Return a tensor on the CPU with the values of ``tensor``, if known.

    What is written to it is written to the values of ``tensor``.
    """
    if not tensor.is_meta:
        return tensor
    if not has_values(tensor):
        return None
    return _view_of(vars(tensor.untyped_storage())[_ATTRIBUTE], tensor)


def _view_of(storage: torch.UntypedStorage, like: Tensor) -> Tensor:
    """Return a tensor that lies in a storage as another does in its own."""
    form = like.storage_offset(), like.shape, like.stride()
    empty = _empty([0], dtype=like.dtype, device=storage.device)
    return cast(Tensor, empty.set_(storage, *form))


def may_keep(tensor: Tensor) -> bool:
    """Return whether a tensor is small, of integers, and all of its memory."""
    if not is_small_integer(tensor):
        return False
    is_whole = tensor.nbytes == tensor.untyped_storage().nbytes()
    return is_whole and has_no_gaps(tensor)


def has_no_gaps(tensor: Tensor) -> bool:
    """Return whether a tensor has each element of a piece of memory once."""
    places = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
    return tensor.is_contiguous() or tensor.permute(places).is_contiguous()


def keep_values(tensor: Tensor, values: Tensor) -> None:
    """Keep values for the memory of a tensor that may have them."""
    storage = tensor.untyped_storage()
    kept = torch.UntypedStorage(storage.nbytes(), device="cpu")
    vars(storage)[_ATTRIBUTE] = kept
    known = values_of(tensor)
    assert known is not None
    known.copy_(values)


def lose_values(tensor: Tensor) -> None:
    """Make the values of a tensor unknown, and of its views."""
    if tensor.is_meta:
        lose_values_of_storage(tensor.untyped_storage())


def lose_values_of_storage(storage: torch.UntypedStorage) -> None:
    """Make the values of a storage unknown, and so those of its tensors."""
    vars(storage).pop(_ATTRIBUTE, None)


def deepcopy_backing(tensor: Tensor, memo: dict[Any, Any]) -> Tensor:
    """Return a copy, with its values; what shares memory does so again."""
    if not tensor.is_meta or tensor.is_conj() or tensor.is_neg():
        return copy.deepcopy(tensor, memo)
    storage = tensor.untyped_storage()
    key = "storage", storage._cdata
    if key not in memo:
        memo[key] = torch.UntypedStorage(storage.nbytes(), device="meta")
        if has_values(tensor):
            vars(memo[key])[_ATTRIBUTE] = vars(storage)[_ATTRIBUTE].clone()
    return _view_of(memo[key], tensor)


def keep_any(tensor: Tensor) -> None:
    """Keep arbitrary values for a tensor that is to be overwritten."""
    if tensor.is_meta and may_keep(tensor):
        keep_values(tensor, torch.empty_like(tensor, device="cpu"))
