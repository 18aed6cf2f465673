"""Scaling the loss, so that gradients in half precision are not zero.

The smallest value of float16 above zero is 6e-8, the largest 65504. The loss
is multiplied by a scale before backward, and with it every gradient; before
the update they are divided by it. When one is infinite the scale was too
large: the step is skipped, and the scale halved.
"""

from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from dpkit.processes import rank_device

LR = 0.1


class LossScaler:
    """Scale losses, and skip the steps in which that was too much.

    With ``shared``, all ranks skip a step that one of them has to skip. After
    ``growth_interval`` steps without a skip the scale is doubled.
    """

    def __init__(
        self, shared: bool, scale: float = 2.0**16, growth_interval: int = 2000
    ) -> None:
        self.shared = shared
        self.scale = scale
        self.growth_interval = growth_interval
        self._num_good = 0

    def unscale(self, grads: list[Tensor]) -> bool:
        """Divide float32 gradients by the scale; say if all are finite."""
        for grad in grads:
            grad /= self.scale
        finite = torch.tensor(all(bool(g.isfinite().all()) for g in grads))
        flag = finite.to(grads[0].device, torch.int32)
        if self.shared:
            dist.all_reduce(flag, op=dist.ReduceOp.MIN)
        good = bool(flag)
        self._num_good = self._num_good + 1 if good else 0
        if not good:
            self.scale /= 2
        elif self._num_good == self.growth_interval:
            self.scale *= 2
            self._num_good = 0
        return good


class Trained(NamedTuple):
    """What a rank did."""

    scales: list[float]  # after each step
    num_updates: int  # of its part of the parameters
    parameters: list[float]  # all, at the end


def sharded_steps(shared: bool, targets: Tensor) -> Trained:
    """Train parameters of which each rank updates one; return what it did.

    The loss of an example is half its squared distance from the parameters.
    Each rank makes gradients in float16 for its example, sums those of one
    parameter in float32 and updates it. The targets have shape (steps, ranks,
    ranks).
    """
    rank = dist.get_rank()
    num_ranks = dist.get_world_size()
    targets = targets.to(rank_device())
    params = torch.zeros(num_ranks, device=targets.device)
    scaler = LossScaler(shared)
    scales = []
    num_updates = 0
    for target in targets[:, rank]:
        grads = (params - target).half() * scaler.scale  # those of the loss
        total = grads.float()
        dist.all_reduce(total)
        mine = total[rank : rank + 1] / num_ranks
        if scaler.unscale([mine]):
            params[rank] -= LR * mine.item()
            num_updates += 1
        scales.append(scaler.scale)
        parts = list(params.split(1))
        dist.all_gather(parts, params[rank : rank + 1].clone())
        params = torch.cat(parts)
    return Trained(scales, num_updates, params.tolist())
