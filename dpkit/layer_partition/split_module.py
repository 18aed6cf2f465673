"""What the modules of this package have in common."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from dpkit.layer_partition.shards import join

Pick = Callable[[nn.Parameter], Tensor]


class SplitModule(nn.Module):
    """A module of which each device has a part, in ``parts``.

    Attributes:
        parts: What each device has, in order of rank.
    """

    parts: nn.ModuleList

    def copies(self) -> list[list[nn.Parameter]]:
        """Return the groups of parameters that are copies of one."""
        return []

    def full_tensors(self, pick: Pick) -> dict[str, Tensor]:
        """Return what is picked of the parameters, joined, by name."""
        return {
            name: join([pick(part.get_parameter(name)) for part in self.parts])
            for name, _ in self.parts[0].named_parameters()
        }
