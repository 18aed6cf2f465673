"""Communication that backward undoes: pairs of conjugate operations.

The gradient of an operation that sends is an operation that sends the other
way. With xs[rank] on devices[rank]::

    operation                 forward         backward
    allreduce_backward        nothing         allreduce
    allreduce_forward         allreduce       nothing
    allgather_forward         allgather       each keeps its own part
    reduce_scatter_backward   allgather       reduce-scatter
    spread                    copy to all     take the first
    take_one                  take the first  copy to all

Every row is exact under one condition, which every row preserves: where the
tensors of all ranks are replicas, so are the gradients that arrive. (In
``reduce_scatter_backward`` and ``allreduce_backward`` each rank's gradient is
only the part that this rank's work contributes; their sum is the gradient.)

Source: M. Shoeybi et al., Megatron-LM, 2019, section 3, where the first two
are f and g.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from dpkit.arguments import (
    Devices,
    check_dim,
    check_tensor,
    device_list,
    tensor_list,
)
from dpkit.collectives import allreduce, planned_allreduce

# An operation takes a tensor of each rank, and gives one to each.
Operation = Callable[[Sequence[Tensor]], Iterable[Tensor]]


class Conjugates(Function):
    """Do one operation in forward, and its conjugate in backward."""

    @staticmethod
    def forward(
        ctx: Any, there: Operation, back: Operation, *xs: Tensor
    ) -> tuple[Tensor, ...]:
        """Return what ``there`` makes of the tensors.

        Args:
            ctx: PyTorch's; it keeps ``back`` for backward.
            there: The operation of forward.
            back: The operation of backward, on the gradients of the outputs.
            xs: A tensor of each rank.
        """
        ctx.back = back
        return tuple(there(xs))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Return what ``back`` makes of their gradients."""
        return None, None, *ctx.back(gradients)


def conjugates(
    xs: Sequence[Tensor], there: Operation, back: Operation
) -> list[Tensor]:
    """Do ``there`` now, and ``back`` to the gradients in backward."""
    return list(Conjugates.apply(there, back, *tensor_list(xs)))


def allreduce_backward(
    xs: Sequence[Tensor], algorithm: str = "ring"
) -> list[Tensor]:
    """Pass replicas on; in backward, add up the gradients of all ranks.

    It stands before a layer of which each rank has a part: each part uses the
    whole input, so the input's gradient is the sum of what they send back.
    ``algorithm`` is that of :func:`dpkit.allreduce`.

    Example:
        >>> xs = [torch.ones(3, device=d, requires_grad=True)
        ...       for d in dpkit.devices(2, kind="sim")]
        >>> ys = dpkit.layer_partition.allreduce_backward(xs)
        >>> torch.autograd.backward([ys[0].sum(), 4 * ys[1].sum()])
        >>> [x.grad.tolist() for x in xs]  # 1 + 4
        [[5.0, 5.0, 5.0], [5.0, 5.0, 5.0]]
    """
    xs = tensor_list(xs, least=1)
    planned_allreduce(algorithm, len(xs))
    return conjugates(xs, there=views, back=partial(sums, algorithm=algorithm))


def allreduce_forward(
    xs: Sequence[Tensor], algorithm: str = "ring"
) -> list[Tensor]:
    """Add up the tensors of all ranks; in backward, pass gradients on.

    It stands behind a layer of which each rank has computed a term, of one
    shape. It gives k replicas of their sum. ``algorithm`` is that of
    :func:`dpkit.allreduce`.

    Example:
        >>> xs = [torch.full((2,), r + 1.0, device=d)
        ...       for r, d in enumerate(dpkit.devices(3, kind="sim"))]
        >>> dpkit.layer_partition.allreduce_forward(xs)[2]  # 1 + 2 + 3
        tensor([6., 6.], device='sim:2')
    """
    return conjugates(xs, there=partial(sums, algorithm=algorithm), back=tuple)


def allgather_forward(xs: Sequence[Tensor], dim: int) -> list[Tensor]:
    """Join the shards of all ranks on each; in backward, keep one's own part.

    For what every rank then uses in the same way, such as scores from which
    each computes the loss. The k shards may differ in size along ``dim``.

    Example:
        >>> xs = [torch.full((1, 2 - r), r, device=d)
        ...       for r, d in enumerate(dpkit.devices(2, kind="sim"))]
        >>> dpkit.layer_partition.allgather_forward(xs, dim=1)[0]
        tensor([[0, 0, 1]], device='sim:0')
    """
    xs = tensor_list(xs, least=1)
    sizes = _sizes(xs, dim)

    def own_parts(gradients: Sequence[Tensor]) -> list[Tensor]:
        parts = [g.split(sizes, dim) for g in gradients]
        return [parts[rank][rank] for rank in range(len(parts))]

    return conjugates(xs, there=lambda xs: wholes(xs, dim), back=own_parts)


def reduce_scatter_backward(xs: Sequence[Tensor], dim: int) -> list[Tensor]:
    """Join the shards of all ranks on each; in backward, sum and part again.

    For what every rank uses in another way, such as the input of a layer of
    which each has a part. :func:`allgather_forward` with
    :func:`allreduce_backward` would send twice as much back.

    Example:
        >>> xs = [torch.ones(1, n, device=d, requires_grad=True)
        ...       for n, d in zip((2, 1), dpkit.devices(2, kind="sim"))]
        >>> ys = dpkit.layer_partition.reduce_scatter_backward(xs, dim=1)
        >>> [tuple(y.shape) for y in ys]
        [(1, 3), (1, 3)]
        >>> torch.autograd.backward([ys[0].sum(), 4 * ys[1].sum()])
        >>> [x.grad.tolist() for x in xs]  # 1 + 4
        [[[5.0, 5.0]], [[5.0]]]
    """
    xs = tensor_list(xs, least=1)
    sizes = _sizes(xs, dim)

    def sums_of_parts(gradients: Sequence[Tensor]) -> list[Tensor]:
        # On rank 1 of 3: its part of gradient 1, then += those of 0 and 2.
        parts = [g.split(sizes, dim) for g in gradients]
        totals = []
        for rank, own in enumerate(parts):
            total = own[rank].clone()
            for other in parts[:rank] + parts[rank + 1 :]:
                total += other[rank].to(total.device)
            totals.append(total)
        return totals

    return conjugates(xs, there=lambda xs: wholes(xs, dim), back=sums_of_parts)


def spread(x: Tensor, devices: Devices) -> list[Tensor]:
    """Copy a tensor to all devices; in backward, take the first's gradient.

    ``x`` may have any shape; the copies are in the order of devices.

    Example:
        >>> devices = dpkit.devices(2, kind="sim")
        >>> x = torch.ones(3, device=devices[0], requires_grad=True)
        >>> ys = dpkit.layer_partition.spread(x, devices)
        >>> torch.autograd.backward([5 * y.sum() for y in ys])
        >>> x.grad  # of replicas, so nothing is added up
        tensor([5., 5., 5.], device='sim:0')
    """
    check_tensor(x)
    devices = device_list(devices, least=1)
    home = x.device
    return conjugates(
        [x],
        there=lambda xs: [xs[0].to(device, copy=True) for device in devices],
        back=lambda gradients: [gradients[0].to(home)],
    )


def take_one(xs: Sequence[Tensor]) -> Tensor:
    """Return the first of equal tensors; in backward, copy its gradient.

    Example:
        >>> xs = [torch.ones(3, device=d, requires_grad=True)
        ...       for d in dpkit.devices(2, kind="sim")]
        >>> y = dpkit.layer_partition.take_one(xs)
        >>> (5 * y.sum()).backward()
        >>> [x.grad.tolist() for x in xs]
        [[5.0, 5.0, 5.0], [5.0, 5.0, 5.0]]
    """
    devices = [x.device for x in tensor_list(xs, least=1)]
    return conjugates(
        xs,
        there=lambda xs: views(xs[:1]),
        back=lambda gradients: [gradients[0].to(device) for device in devices],
    )[0]


def _sizes(xs: Sequence[Tensor], dim: int) -> list[int]:
    """Return the sizes of shards along a dimension, which all have to have."""
    for x in tensor_list(xs):
        check_dim(x, dim)
    return [x.shape[dim] for x in xs]


def views(xs: Sequence[Tensor]) -> list[Tensor]:
    """Return views of the tensors: what goes in must not come out as it is."""
    return [x.view_as(x) for x in xs]


def sums(xs: Sequence[Tensor], algorithm: str) -> Sequence[Tensor]:
    """Return the sum of the tensors on each of their devices."""
    if len(xs) == 1:
        return xs  # one device has it already
    totals = [x.clone(memory_format=torch.contiguous_format) for x in xs]
    allreduce(totals, algorithm=algorithm)
    return totals


def wholes(shards: Sequence[Tensor], dim: int) -> list[Tensor]:
    """Return the joined shards on each of their devices."""
    return [
        torch.cat([shard.to(own.device) for shard in shards], dim)
        for own in shards
    ]
