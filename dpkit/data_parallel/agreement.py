"""What ranks have to agree on before they train one module together."""

from collections.abc import Sequence
from itertools import chain, zip_longest
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from dpkit.arguments import check_shaped, check_trained
from dpkit.buckets import assign

BROADCAST_BYTES = 25 * 2**20  # broadcast together, in one flat tensor


@torch.no_grad()
def copy_from_rank_0(tensors: Sequence[Tensor]) -> None:
    """Make the tensors equal to those of rank 0, many in one message."""
    for group in assign(tensors, BROADCAST_BYTES):
        some = [tensors[i] for i in group]
        flat = torch.cat([tensor.reshape(-1) for tensor in some])
        # Sent as bytes, because gloo does not know all dtypes.
        dist.broadcast(flat.view(torch.uint8), src=0)
        if dist.get_rank() > 0:
            pieces = flat.split([tensor.numel() for tensor in some])
            for tensor, piece in zip(some, pieces):
                tensor.copy_(piece.view(tensor.shape))


def check_module(module: nn.Module) -> None:
    """Raise an error unless there is a group that can train the module."""
    if not (dist.is_available() and dist.is_initialized()):
        raise RuntimeError(
            "there is no process group (torch.distributed is not "
            "initialised); launch() and torchrun start processes for one"
        )
    check_shaped("module", module)
    check_trained(module)
    tensors = chain(module.parameters(), module.buffers())
    devices = {tensor.device for tensor in tensors}
    if len(devices) > 1:
        raise ValueError(
            "the module lies on several devices (devices: "
            f"{', '.join(sorted(map(str, devices)))}); a process has one"
        )
    (device,) = devices
    if device.type == "sim":
        raise ValueError(
            f"the module lies on a simulated device (device: {device}); "
            "simulated devices all belong to one process"
        )


def check_alike(module: nn.Module, **options: object) -> None:
    """Raise ValueError on all ranks unless they have the same wrapper.

    Parameters and buffers have to agree in names, dtypes, shapes, strides and
    in whether they require a gradient; ``options``, those of the wrapper, in
    their values.
    """
    tensors = [
        (name, str(t.dtype), tuple(t.shape), t.stride(), t.requires_grad)
        for name, t in chain(module.named_parameters(), module.named_buffers())
    ]
    _check_same("modules", tensors)
    _check_same("wrappers", list(options.items()))


def _check_same(what: str, mine: Sequence[object]) -> None:
    # All ranks compare all, so that all raise and none waits for another.
    ranks: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(ranks, mine)
    for rank, theirs in enumerate(ranks):
        for first, other in zip_longest(ranks[0], theirs):
            if first != other:
                raise ValueError(
                    f"the {what} of the ranks differ (rank 0: {first}, rank "
                    f"{rank}: {other})"
                )
