"""How ranks compute attention on DTensors.

DTensor has rules for the kernels of CUDA. It has none that suffices for the
kernel of the CPU, by which simulated devices compute. On ranks DTensor hands
this kernel to the functions here. Each rank takes the examples or the heads
that it has of the queries, and the rest is brought to lie as they do. So
nothing is sent where all lie alike::

    queries    keys, values, outputs, gradients    mask
    Shard(0)   Shard(0)                            Shard(0), or whole
    Shard(1)   Shard(1)                            Shard(1), or whole
    other      Replicate                           Replicate

The tensors are (examples, heads, length, width). A mask that is the same for
all examples, or for all heads, is whole on each rank. PyTorch's rules for CUDA
are these, but they go by what is cheapest to send: queries that are cut along
another dimension may be cut by heads there.

A mask has to be brought by hand. PyTorch brings the positional arguments of an
operation to where a rule wants them, and the mask is a keyword of this kernel.
So these are not rules, but functions that DTensor calls for an operation. They
end with the launch: other processes have what PyTorch has.
"""

from functools import partial
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Replicate, Shard

_aten = torch.ops.aten
_dispatcher: Any = DTensor._op_dispatcher
_WHOLE = Replicate()
_HEADS = 1  # the dimension
_Way = list[Any]  # a placement for each axis of the mesh


def _attention(op: Any, args: Any, kwargs: Any) -> tuple[DTensor, ...]:
    """Compute a rank's part of the outputs, and of what backward keeps."""
    query, key, value, *settings = args
    return _run(op, [query, key, value], (query, key), settings, kwargs)


def _gradients(op: Any, args: Any, kwargs: Any) -> tuple[DTensor, ...]:
    """Compute a rank's part of the gradients of queries, keys and values."""
    tensors, settings = list(args[:6]), args[6:]
    _, query, key, *_ = tensors
    return _run(op, tensors, (query, key), settings, kwargs)


# What DTensor calls for an operation, instead of asking for a rule.
HANDLERS = {
    _aten._scaled_dot_product_flash_attention_for_cpu.default: _attention,
    _aten._scaled_dot_product_flash_attention_for_cpu_backward.default: (
        _gradients
    ),
}


def _run(
    op: Any, tensors: list[Any], pair: Any, settings: Any, kwargs: Any
) -> tuple[DTensor, ...]:
    """Run a kernel on a rank's part of the tensors; return DTensors."""
    _refuse_parts_of_sequences()
    query, key = (_as_dtensor(x, tensors) for x in pair)
    mesh, way = query.device_mesh, _way(query, key)
    wholes = [_as_dtensor(x, tensors) for x in tensors]
    own = dict(kwargs)
    mask = own.pop("attn_mask", None)
    like = op(*map(_without_numbers, wholes), *settings, **own)
    with torch.no_grad():
        parts = [_part(x, way) for x in wholes]
        if mask is not None:
            mask = _as_dtensor(mask, tensors)
            own["attn_mask"] = _part(mask, _way_of_mask(mask, query, way))
        outs = op(*parts, *settings, **own)
        return tuple(map(partial(_joined, mesh, way), outs, like))


def _joined(mesh: Any, way: _Way, part: Tensor, like: Tensor) -> DTensor:
    """Return the DTensor that a rank has a part of."""
    return DTensor.from_local(
        part,
        mesh,
        way,
        run_check=False,
        shape=like.shape,
        stride=like.stride(),
    )


def _way(query: DTensor, key: DTensor) -> _Way:
    """Return how the tensors are to lie: as the queries, or whole.

    Where the ranks do not divide the examples or the heads, the tensors are
    whole. PyTorch's rules for CUDA ask for that as well. The heads of the keys
    count. With 6 heads of queries in groups, and 3 of keys, each of 2 ranks
    would have 3 heads of queries, which belong to 1.5 of keys.
    """
    cut: _Way = []
    for how in query.placements:
        fits = how in (Shard(0), Shard(_HEADS))
        cut.append(how if fits else _WHOLE)
    for dim in (0, _HEADS):
        mesh = query.device_mesh
        ranks = prod(n for n, p in zip(mesh.shape, cut) if p.is_shard(dim))
        if key.shape[dim] == 0 or key.shape[dim] % ranks:
            cut = [_WHOLE if p.is_shard(dim) else p for p in cut]
    return cut


def _way_of_mask(mask: DTensor, query: DTensor, way: _Way) -> _Way:
    """Return how a mask is to lie; what is the same for all is whole."""
    # queries   (8 examples, 4 heads, 5, 2)   Shard(0)    Shard(1)
    # mask                      (5, 5)        Replicate   Replicate
    # mask      (8,          1,  5, 5)        Shard(0)    Replicate
    cut = [d for d in (0, _HEADS) if mask.dim() == 4 and mask.shape[d] > 1]
    return [p if any(map(p.is_shard, cut)) else _WHOLE for p in way]


def _part(tensor: DTensor, way: _Way) -> Tensor:
    """Return a rank's part of a tensor, after it has been brought there."""
    return tensor.redistribute(placements=way).to_local()


def _without_numbers(x: DTensor) -> Tensor:
    """Return a tensor that has the shape and the order of the whole."""
    return torch.empty_strided(
        x.shape, x.stride(), dtype=x.dtype, device="meta"
    )


def _as_dtensor(tensor: Any, others: list[Any]) -> DTensor:
    """Return a DTensor; a plain one is whole where PyTorch allows that."""
    if isinstance(tensor, DTensor):
        return tensor
    if not getattr(_dispatcher, "_allow_implicit_replication", False):
        raise RuntimeError(
            "attention got mixed torch.Tensor and DTensor (device: "
            f"{tensor.device}); distribute_tensor makes one of the other"
        )
    mesh = next(x.device_mesh for x in others if isinstance(x, DTensor))
    return DTensor.from_local(
        tensor, mesh, [_WHOLE] * mesh.ndim, run_check=False
    )


def _refuse_parts_of_sequences() -> None:
    """Refuse what PyTorch's context parallelism asks of CUDA's kernels."""
    # It may have put the words of a sequence in another order, and takes care
    # of that in what it does instead of CUDA's kernels.
    if _aten._scaled_dot_product_flash_attention.default in (
        _dispatcher._custom_op_handlers
    ):
        raise NotImplementedError(
            "context parallelism sends keys and values between kernels of "
            "CUDA, which simulated devices do not have (operation: "
            "scaled_dot_product_attention)"
        )
