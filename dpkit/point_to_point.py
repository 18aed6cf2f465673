"""The collectives between processes, by sends and receives of two ranks.

The same lists of messages that ``dpkit.collectives`` runs on devices of one
process are run here by all ranks of a ``torch.distributed`` group: each takes
from the list what it has to send and to receive. It does so in an order in
which a send may block until it is received
(``dpkit.theory.collectives.blocking``)::

    rank 0   send to 1 ─▶     receive from 2
    rank 1   receive from 0   send to 2 ─▶
    rank 2   send to 0 …      receive from 1   ─▶

PyTorch has its own collectives, which are faster; these show that nothing
else is in them.
"""

from collections.abc import Iterable
from itertools import groupby

import torch
import torch.distributed as dist
from torch import Tensor

from dpkit.plan_runner import ADD, check_op, view
from dpkit.theory.collectives import algorithms
from dpkit.theory.collectives.blocking import Call, calls
from dpkit.theory.collectives.plans import Message, Plan, num_elements


def allreduce_by_sends(
    tensor: Tensor,
    op: str = "sum",
    algorithm: str = "ring",
    ranks_per_node: int | None = None,
) -> None:
    """Leave the sum, mean, maximum or minimum of all ranks' tensors in each.

    Every rank has to call it, with a tensor of one shape and dtype.

    Args:
        tensor: Any shape; this rank's, changed in place.
        op: "sum", "mean", "max" or "min", each element by itself.
        algorithm: As for :func:`dpkit.allreduce`.
        ranks_per_node: For "hierarchical".

    Raises:
        ValueError: op, algorithm or ``ranks_per_node``, as for
            :func:`dpkit.allreduce`.
    """
    check_op(op, tensor.dtype)
    p = dist.get_world_size()
    run_as_rank(
        algorithms.allreduce_plan(algorithm, p, ranks_per_node), tensor, op
    )
    if op == "mean":
        with torch.no_grad():
            tensor /= p


@torch.no_grad()
def run_as_rank(plan: Plan, tensor: Tensor, op: str = "sum") -> None:
    """Send and receive this rank's messages of a plan, in place.

    Args:
        plan: The same one on every rank, for as many ranks as the group has.
        tensor: Any shape; this rank's.
        op: What adding is: "sum", "max" or "min".

    Raises:
        ValueError: the plan is for another number of ranks.
    """
    if plan.world_size != dist.get_world_size():
        raise ValueError(
            "the plan is for another number of ranks (plan: "
            f"{plan.world_size}, group: {dist.get_world_size()})"
        )
    flat = tensor.contiguous().view(-1)
    mine = [
        call
        for call in calls(plan)[dist.get_rank()]
        if num_elements(plan, call.message, len(flat))
    ]
    for _, step in groupby(mine, key=lambda call: call.step):
        _run_step(plan, step, flat, op)
    if not tensor.is_contiguous():
        tensor.copy_(flat.view_as(tensor))


def _run_step(plan: Plan, step: Iterable[Call], flat: Tensor, op: str) -> None:
    """Send, receive, and only then change what has been sent."""
    received: list[tuple[Message, Tensor]] = []
    for sends, message, _ in step:
        if sends:
            chunks = range(message.first, message.stop)
            dist.send(view(plan, chunks, flat), message.target)
        else:
            x = torch.empty_like(view(plan, message.landing, flat))
            dist.recv(x, message.source)
            received.append((message, x))
    for message, x in received:
        mine = view(plan, message.landing, flat)
        if message.adds:
            ADD[op](mine, x)
        else:
            mine.copy_(x)
