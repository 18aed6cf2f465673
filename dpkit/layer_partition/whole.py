"""The split network as a whole: one module, its copies, its full tensors."""

from collections.abc import Callable

from torch import Tensor, nn

from dpkit.arguments import Devices, check_kind, device_list
from dpkit.layer_partition.conjugates import spread, take_one
from dpkit.layer_partition.shards import SplitModule


class LayerParallel(nn.Module):
    """An ordinary module, whose layers are split over devices inside.

    A tensor goes in on the first device and one comes out there; in between
    all devices work. So it can be trained like any module, or be a stage of a
    pipeline. The module within takes and gives replicas on these devices.

    Example:
        >>> devices = dpkit.devices(2, kind="sim")
        >>> inner = dpkit.layer_partition.Replicated(nn.Linear(3, 4), devices)
        >>> net = dpkit.layer_partition.LayerParallel(inner, devices)
        >>> tuple(net(torch.ones(5, 3, device=devices[0])).shape)
        (5, 4)
    """

    def __init__(self, module: nn.Module, devices: Devices) -> None:
        super().__init__()
        check_kind("module", module, nn.Module)
        self.module = module
        self.devices = device_list(devices, least=1)

    def forward(self, x: Tensor) -> Tensor:
        """Return the module's output, on the first device."""
        return take_one(self.module(spread(x, self.devices)))


def copies(module: nn.Module) -> list[list[nn.Parameter]]:
    """Return the groups of parameters that are copies of one.

    There is a group for each parameter that every device has whole: its k
    copies, in order of rank. A norm over all parameters must count it once.

    Example:
        >>> devices = dpkit.devices(3, kind="sim")
        >>> layer = dpkit.RowParallelLinear(nn.Linear(5, 4), devices)
        >>> groups = dpkit.layer_partition.copies(layer)
        >>> [[tuple(p.shape) for p in group] for group in groups]
        [[(4,), (4,), (4,)]]
    """
    check_kind("module", module, nn.Module)
    return [
        group
        for part in module.modules()
        if isinstance(part, SplitModule)
        for group in part.copies()
    ]


def full_tensors(
    module: nn.Module, pick: Callable[[nn.Parameter], Tensor] | None = None
) -> dict[str, Tensor]:
    """Return the tensors of the network before it was split, on the CPU.

    Shards are joined; of replicas the first is taken. If the modules stand in
    an ``nn.Sequential`` where the layers stood that they were made from, the
    names are those of its ``state_dict``. ``pick`` is what to take of each
    parameter, such as ``lambda p: p.grad``; None: the parameter itself.

    Example:
        >>> devices = dpkit.devices(3, kind="sim")
        >>> layer = dpkit.RowParallelLinear(nn.Linear(5, 4), devices)
        >>> full = dpkit.layer_partition.full_tensors(layer)
        >>> {name: tuple(tensor.shape) for name, tensor in full.items()}
        {'weight': (4, 5), 'bias': (4,)}
    """
    check_kind("module", module, nn.Module)
    if isinstance(module, SplitModule):
        return module.full_tensors(pick or (lambda p: p))
    full: dict[str, Tensor] = {}
    for name, child in module.named_children():
        found = full_tensors(child, pick)
        full |= {f"{name}.{key}": tensor for key, tensor in found.items()}
    return full
