"""A block of a network on several devices, its parameters in flat tensors.

The parameters of a block lie one behind another in one tensor, which is cut
into parts along its elements, wherever the borders of parameters are. A
weight of 2×3 and a bias of 2 on three devices::

    element       0 1 2 3 4 5 | 6 7
    parameter     weight        bias
    part of rank  0 0 0 1 1 1   2 2

The whole can be freed, as long as each rank keeps its part somewhere. Then it
has no memory, but the parameters stay views of it: when it is gathered again,
they have their values again, for autograd too.
"""

import copy
from collections.abc import Iterator, Sequence
from itertools import chain

import torch
from torch import Tensor, nn

from dpkit.arguments import check_kind, device_list
from dpkit.collectives import allgather


class FlatBlock:
    """A block of a network on k devices.

    Attributes:
        replicas: ``replicas[r]`` is the block on ``devices[r]``.
        wholes: ``wholes[r]``, shape (elements of all parameters,), has the
            parameters of ``replicas[r]``, which are views of it.
        shards: ``shards[r]``, shape (elements of part r,), is what rank r
            updates: its part of ``wholes[r]`` or, after :meth:`cut`, a copy.

    Raises:
        ValueError: parameters of the block have several dtypes, or some need
            no gradients: the step of the whole would change them.

    Example:
        >>> from dpkit.sharding import FlatBlock
        >>> block = FlatBlock(nn.Linear(3, 2), dpkit.devices(3, "sim"))
        >>> [tuple(shard.shape) for shard in block.shards]
        [(3,), (3,), (2,)]
    """

    def __init__(
        self, block: nn.Module, devices: Sequence[torch.device]
    ) -> None:
        devices = device_list(devices, least=1)
        check_kind("block", block, nn.Module)
        dtypes = {p.dtype for p in block.parameters()}
        if len(dtypes) != 1:
            found = ", ".join(sorted(map(str, dtypes))) or "none"
            raise ValueError(
                "a block needs parameters, all of one dtype (block: "
                f"{type(block).__name__}, dtypes: {found})"
            )
        if not all(p.requires_grad for p in block.parameters()):
            raise ValueError(
                "all parameters of a block need gradients (without: "
                f"{', '.join(_frozen(block))})"
            )
        self.replicas = [copy.deepcopy(block).to(d) for d in devices]
        self.wholes = [_flatten(replica) for replica in self.replicas]
        self.shards = self.parts()

    def parts(self) -> list[Tensor]:
        """Return part r of the whole of rank r, as a view of it."""
        k = len(self.wholes)
        return [w.tensor_split(k)[r] for r, w in enumerate(self.wholes)]

    def cut(self, dtype: torch.dtype | None = None) -> None:
        """Make each shard a separate tensor, and free the whole.

        The whole parameters get another ``dtype``, if one is given.
        """
        self.shards = [part.clone() for part in self.shards]
        if dtype is not None:
            for p in self.parameters():
                p.data = p.data.to(dtype)
            self.wholes = [_flatten(r) for r in self.replicas]
        self.free()

    def parameters(self) -> Iterator[nn.Parameter]:
        """Yield the parameters of all replicas, rank by rank."""
        return chain.from_iterable(r.parameters() for r in self.replicas)

    def forget_gradients(self) -> None:
        """Leave no replica a gradient."""
        for p in self.parameters():
            p.grad = None

    @torch.no_grad()
    def take_gradients(self) -> list[Tensor]:
        """Return the gradients of each replica, flat, and leave it none."""
        found = [_taken(list(r.parameters())) for r in self.replicas]
        self.forget_gradients()
        return found

    def add_gradients(self, parts: Sequence[Tensor]) -> None:
        """Add a copy of part r to the gradient of shard r."""
        for shard, part in zip(self.shards, parts):
            if shard.grad is None:
                shard.grad = part.to(shard.dtype, copy=True)
            else:
                shard.grad += part

    def gather(self, algorithm: str = "ring") -> None:
        """Make the parameters whole on each device, from all shards."""
        for whole in self.wholes:
            storage = whole.untyped_storage()
            storage.resize_(whole.numel() * whole.itemsize)
        for part, shard in zip(self.parts(), self.shards):
            part.copy_(shard)
        allgather(self.wholes, algorithm)

    def free(self) -> None:
        """Give back the memory of the whole parameters."""
        for whole in self.wholes:
            whole.untyped_storage().resize_(0)


def _frozen(module: nn.Module) -> list[str]:
    return [n for n, p in module.named_parameters() if not p.requires_grad]


def _flatten(module: nn.Module) -> Tensor:
    """Return the parameters one behind another; they become views of it."""
    params = list(module.parameters())
    whole = torch.cat([p.detach().flatten() for p in params])
    for p, piece in zip(params, whole.split([p.numel() for p in params])):
        # Autograd would take a gather for a change of what it has saved. By
        # way of .data it takes no notice.
        p.data = piece.view_as(p)
    return whole


def _taken(params: Sequence[Tensor]) -> Tensor:
    """Return the gradients as one flat tensor, zeros where there is none."""
    grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in params]
    return torch.cat([grad.flatten() for grad in grads])
