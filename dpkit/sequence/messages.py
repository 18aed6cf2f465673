"""What goes to the next rank of a ring."""

import torch
import torch.distributed as dist
from torch import Tensor


class PassedOn:
    """A tensor on its way to the next rank, while another one arrives.

    Each rank of the group makes one at the same time, of a tensor of one
    shape. On GPUs and on simulated devices the messages travel while the
    device computes. A rank that is alone sends nothing.

    Args:
        x: What this rank sends; it must not change until :meth:`wait`.
        group: The ranks of the ring, or None for all ranks.
    """

    def __init__(self, x: Tensor, group: dist.ProcessGroup | None) -> None:
        rank = dist.get_rank(group)
        world_size = dist.get_world_size(group)
        self._sent = x.contiguous()
        self._works: list[dist.Work] = []
        self._arrives = self._sent
        if world_size == 1:
            return
        self._arrives = torch.empty_like(self._sent)
        ends = [
            (dist.isend, self._sent, (rank + 1) % world_size),
            (dist.irecv, self._arrives, (rank - 1) % world_size),
        ]
        self._works = dist.batch_isend_irecv(
            [
                dist.P2POp(op, tensor, group=group, group_peer=peer)
                for op, tensor, peer in ends
            ]
        )

    def wait(self) -> Tensor:
        """Return what the rank before this one has sent."""
        for work in self._works:
            work.wait()
        return self._arrives
