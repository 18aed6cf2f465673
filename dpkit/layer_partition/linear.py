"""Linear layers of which every device has a part: by columns, by rows.

The names are those of x A, where the weight is A = W transposed: W of
``nn.Linear`` has the shape (outputs, inputs).

Source: M. Shoeybi et al., Megatron-LM, 2019, section 3.
"""

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from dpkit.arguments import Devices, check_kind, one_per_device
from dpkit.layer_partition.conjugates import (
    allreduce_backward,
    allreduce_forward,
)
from dpkit.layer_partition.replicated import Replicated
from dpkit.layer_partition.shards import (
    Pick,
    SplitModule,
    check_layer,
    checked_sizes,
    joined,
    replicas_of,
    rows_of,
    shards_of,
)


class ColumnParallelLinear(SplitModule):
    """A linear layer of which each device computes some of the outputs.

    It takes replicas and gives shards of the features. Forward sends nothing;
    backward adds up the gradients of the input, in one allreduce.

    Args:
        linear: The layer whose parameters are copied into ``parts``, a layer
            for each device.
        devices: k devices.
        sizes: How many outputs each device computes, one at least; None:
            evenly.
        algorithm: That of the allreduce, as for :func:`dpkit.allreduce`.

    Raises:
        TypeError: it is no ``nn.Linear``.
        ValueError: the sizes do not give each device some of the outputs, or
            there is no such algorithm.

    Example:
        >>> devices = dpkit.devices(3, kind="sim")
        >>> layer = dpkit.ColumnParallelLinear(nn.Linear(2, 7), devices)
        >>> xs = [torch.ones(5, 2, device=d) for d in devices]
        >>> [tuple(y.shape) for y in layer(xs)]  # 3 + 2 + 2 = 7
        [(5, 3), (5, 2), (5, 2)]
    """

    def __init__(
        self,
        linear: nn.Linear,
        devices: Devices,
        sizes: Sequence[int] | None = None,
        algorithm: str = "ring",
    ) -> None:
        super().__init__()
        check_layer("linear", linear, nn.Linear, devices, algorithm)
        self.algorithm = algorithm
        sizes = checked_sizes(sizes, linear.out_features, "outputs", devices)
        self.parts = nn.ModuleList(
            linear_of(weight, bias)
            for weight, bias in rows_of(linear, sizes, devices)
        )

    def forward(self, xs: Sequence[Tensor]) -> list[Tensor]:
        """Return shards (…, outputs of r) of replicas (…, inputs)."""
        xs = one_per_device(xs, len(self.parts))
        xs = allreduce_backward(xs, self.algorithm)
        return [part(x) for part, x in zip(self.parts, xs, strict=True)]


class RowParallelLinear(SplitModule):
    """A linear layer of which each device takes some of the inputs.

    It takes shards of the features and gives replicas. Forward adds up what
    the devices have computed, in one allreduce; backward sends nothing. Each
    device has a copy of the bias, in ``biases``, and adds it after the sum.

    Args:
        linear: The layer whose parameters are copied: its weight into
            ``parts``, a layer without bias for each device.
        devices: k devices.
        sizes: How many inputs each device takes, one at least; None: evenly.
        algorithm: That of the allreduce, as for :func:`dpkit.allreduce`.

    Raises:
        TypeError: it is no ``nn.Linear``.
        ValueError: the sizes do not give each device some of the inputs, or
            there is no such algorithm.

    Example:
        >>> devices = dpkit.devices(2, kind="sim")
        >>> layer = dpkit.RowParallelLinear(nn.Linear(5, 4), devices)
        >>> xs = [torch.ones(3, n, device=d) for n, d in zip((3, 2), devices)]
        >>> [tuple(y.shape) for y in layer(xs)]
        [(3, 4), (3, 4)]
    """

    def __init__(
        self,
        linear: nn.Linear,
        devices: Devices,
        sizes: Sequence[int] | None = None,
        algorithm: str = "ring",
    ) -> None:
        super().__init__()
        check_layer("linear", linear, nn.Linear, devices, algorithm)
        self.algorithm = algorithm
        sizes = checked_sizes(sizes, linear.in_features, "inputs", devices)
        weights = shards_of(linear.weight, sizes, devices, dim=1)
        self.parts = nn.ModuleList(linear_of(w, None) for w in weights)
        bias = linear.bias
        self.biases = nn.ParameterList(
            replicas_of(bias, devices) if bias is not None else []
        )

    def forward(self, xs: Sequence[Tensor]) -> list[Tensor]:
        """Return replicas (…, outputs) of shards (…, inputs of r)."""
        xs = one_per_device(xs, len(self.parts))
        terms = [part(x) for part, x in zip(self.parts, xs, strict=True)]
        ys = allreduce_forward(terms, self.algorithm)
        if not self.biases:
            return ys
        return [y + bias for y, bias in zip(ys, self.biases, strict=True)]

    def copies(self) -> list[list[nn.Parameter]]:
        """Return the groups of parameters that are copies of one."""
        return [list(self.biases)] if self.biases else []

    def full_tensors(self, pick: Pick) -> dict[str, Tensor]:
        """Return what is picked of the parameters, joined, by name."""
        weights = [pick(part.get_parameter("weight")) for part in self.parts]
        full = {"weight": joined(weights, dim=1)}
        if self.biases:
            full["bias"] = joined([pick(self.biases[0])])
        return full


class ParallelMLP(nn.Sequential):
    """Two linear layers with an activation between, split together.

    The first is split by its outputs and the second by the same features, its
    inputs: what one gives is what the other takes. It takes and gives
    replicas, with one allreduce forward and one backward.

    Args:
        first: From inputs to the features between; copied.
        activation: Works on each of these features by itself; copied to
            every device.
        second: From these features to outputs; copied.
        devices: k devices, each of which gets some of the features.
        algorithm: That of the allreduces, as for :func:`dpkit.allreduce`.

    Raises:
        ValueError: the layers do not fit together, or the activation has
            parameters or does not work on each feature by itself.

    Example:
        >>> from dpkit.layer_partition import ParallelMLP
        >>> first, second = nn.Linear(3, 7), nn.Linear(7, 4)
        >>> devices = dpkit.devices(2, kind="sim")
        >>> mlp = ParallelMLP(first, nn.GELU(), second, devices)
        >>> mlp([torch.ones(5, 3, device=d) for d in devices])[1].shape
        torch.Size([5, 4])
    """

    def __init__(
        self,
        first: nn.Linear,
        activation: nn.Module,
        second: nn.Linear,
        devices: Devices,
        algorithm: str = "ring",
    ) -> None:
        check_kind("first", first, nn.Linear)
        check_kind("second", second, nn.Linear)
        check_kind("activation", activation, nn.Module)
        outputs = first.out_features
        inputs = second.in_features
        if outputs != inputs:
            raise ValueError(
                "the second layer does not take what the first gives "
                f"(outputs: {outputs}, inputs: {inputs})"
            )
        _check_activation(activation)
        super().__init__(
            ColumnParallelLinear(first, devices, None, algorithm),
            Replicated(activation, devices),
            RowParallelLinear(second, devices, None, algorithm),
        )


def _check_activation(activation: nn.Module) -> None:
    """Refuse what gives something else for a shard than for the whole."""
    name = type(activation).__name__
    if any(True for _ in activation.parameters()):
        raise ValueError(
            f"an activation with parameters cannot be split ({name}); each "
            "copy would learn from its own features"
        )
    x = torch.linspace(-3, 3, 6)[None]
    probe = copy.deepcopy(activation).cpu()
    try:
        whole = probe(x)
        parts = [probe(part) for part in x.split(2, dim=1)]
        alone = torch.equal(whole, torch.cat(parts, dim=1))
    except (RuntimeError, ValueError, TypeError):
        alone = False
    if not alone:
        raise ValueError(
            f"the activation does not work on each feature by itself ({name})"
        )


def linear_of(weight: nn.Parameter, bias: nn.Parameter | None) -> nn.Linear:
    """Return a layer with these parameters; no random number is drawn."""
    outputs, inputs = weight.shape
    layer = nn.Linear(inputs, outputs, bias=False, device="meta")
    layer.weight = weight
    layer.register_parameter("bias", bias)
    return layer
