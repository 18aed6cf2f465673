"""Clip gradients that lie on several devices, by their norm.

A parameter that several devices hold a copy of is one parameter: its
gradient counts once.
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from dpkit.arguments import check_one_shape, tensor_list
from dpkit.units import check_number


@torch.no_grad()
def clip_grad_norm(
    params: Tensor | Iterable[Tensor],
    max_norm: float,
    copies: Iterable[Sequence[Tensor]] = (),
) -> Tensor:
    """Scale gradients in place, so that their norm is at most ``max_norm``.

    As ``torch.nn.utils.clip_grad_norm_``, over all devices. Return the norm
    before, a tensor of no dimensions.

    Args:
        params: The parameters, on any devices; copies included.
        max_norm: The largest 2-norm of all gradients together; ``math.inf``
            changes none.
        copies: Groups of parameters that are copies of one. Their gradients
            are equal; that of the first among ``params`` counts.

    Raises:
        ValueError: the norm is negative or NaN, or copies of one parameter
            differ in shape or dtype.

    Example:
        Two copies of one parameter, whose gradient is (3, 4), count once:

        >>> one, other = torch.zeros(2), torch.zeros(2)
        >>> one.grad, other.grad = torch.tensor([[3.0, 4.0]] * 2)
        >>> dpkit.clip_grad_norm([one, other], 1.0, copies=[(one, other)])
        tensor(5.)
    """
    check_number("max_norm", max_norm)
    if not max_norm >= 0:
        raise ValueError(
            "the largest norm is negative or NaN, and would turn gradients "
            f"round (max_norm: {max_norm})"
        )
    params = [params] if isinstance(params, Tensor) else tensor_list(params)
    given = {id(p) for p in params}
    again: set[int] = set()
    for group in map(tensor_list, copies):
        check_one_shape(group)
        # The copies are a, b and c; b and c are given: c does not count again.
        again.update([id(p) for p in group if id(p) in given][1:])
    grads = [
        p.grad for p in params if p.grad is not None and id(p) not in again
    ]
    total = get_total_norm(grads)
    clip_grads_with_norm_(params, max_norm, total)
    return total
