"""What every device has whole: copies of a module, joined shards, sums."""

import copy
from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from dpkit.arguments import (
    Devices,
    check_kind,
    device_list,
    one_per_device,
)
from dpkit.layer_partition.conjugates import allgather_forward
from dpkit.layer_partition.shards import Pick, SplitModule
from dpkit.units import check_whole


class Replicated(SplitModule):
    """A copy of a module on each device, such as a layer norm.

    Given replicas it gives replicas, and its parameters stay equal, since
    their gradients are. Given shards, each copy works on its own. A module
    with dropout is refused: its masks would differ from device to device.

    Example:
        >>> devices = dpkit.devices(2, kind="sim")
        >>> norm = dpkit.layer_partition.Replicated(nn.LayerNorm(3), devices)
        >>> norm([torch.ones(5, 3, device=d) for d in devices])[1].device
        device(type='sim', index=1)
    """

    def __init__(self, module: nn.Module, devices: Devices) -> None:
        super().__init__()
        check_kind("module", module, nn.Module)
        for part in module.modules():
            if isinstance(part, _DropoutNd) and part.p > 0:
                raise ValueError(
                    "dropout would draw another mask on each device "
                    f"({type(part).__name__}, p: {part.p})"
                )
        self.parts = nn.ModuleList(
            copy.deepcopy(module).to(device)
            for device in device_list(devices, least=1)
        )

    def forward(self, xs: Sequence[Tensor]) -> list[Tensor]:
        """Return what each copy makes of its device's tensor."""
        xs = one_per_device(xs, len(self.parts))
        return [part(x) for part, x in zip(self.parts, xs, strict=True)]

    def copies(self) -> list[list[nn.Parameter]]:
        """Return the groups of parameters that are copies of one."""
        of_each = [part.parameters() for part in self.parts]
        return [list(group) for group in zip(*of_each, strict=True)]

    def full_tensors(self, pick: Pick) -> dict[str, Tensor]:
        """Return the tensors of the first copy, by name, as ``pick`` says."""
        return {
            name: pick(parameter).detach().cpu()
            for name, parameter in self.parts[0].named_parameters()
        }


class Joined(nn.Module):
    """Shards along dimension ``dim``, joined to the whole on every device.

    What follows must be the same on every device: replicas, down to the loss.

    Example:
        >>> devices = dpkit.devices(2, kind="sim")
        >>> xs = [torch.ones(5, n, device=d) for n, d in zip((2, 1), devices)]
        >>> [tuple(y.shape) for y in dpkit.layer_partition.Joined(dim=1)(xs)]
        [(5, 3), (5, 3)]
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        check_whole("dim", dim)
        self.dim = dim

    def forward(self, xs: Sequence[Tensor]) -> list[Tensor]:
        """Return the whole on each device."""
        return allgather_forward(xs, self.dim)


class Residual(nn.Module):
    """A branch, and past it what goes in: ``x + branch(x)`` on each device.

    The branch takes replicas, and gives replicas of the same shape.

    Example:
        >>> from dpkit.layer_partition import Replicated, Residual
        >>> devices = dpkit.devices(2, kind="sim")
        >>> block = Residual(Replicated(nn.ReLU(), devices))
        >>> xs = [torch.tensor([-1.0, 2.0, 3.0], device=d) for d in devices]
        >>> block(xs)[1]
        tensor([-1.,  4.,  6.], device='sim:1')
    """

    def __init__(self, branch: nn.Module) -> None:
        super().__init__()
        check_kind("branch", branch, nn.Module)
        self.branch = branch

    def forward(self, xs: Sequence[Tensor]) -> list[Tensor]:
        """Return the sums."""
        ys = self.branch(xs)
        return [x + y for x, y in zip(xs, ys, strict=True)]
