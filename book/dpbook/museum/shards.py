"""Bugs of gradients and parameters of which each rank has a shard."""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn

from dpbook.museum.exhibit import Exhibit, Version, claim
from dpbook.museum.replicas import line, squares, task
from dpkit import sim
from dpkit.data_parallel import gradient


def shard_of_means(losses: Tensor, weight: Tensor) -> Tensor:
    """Return a shard of the mean of the gradients of mean losses."""
    losses.mean().backward()
    return scattered(gradient(weight)) / dist.get_world_size()


def shard_of_sums(losses: Tensor, weight: Tensor) -> Tensor:
    """Return a shard of the sum of the gradients, divided by all rows."""
    losses.sum().backward()
    num_rows = torch.tensor(len(losses), device="sim")
    dist.all_reduce(num_rows)
    return scattered(gradient(weight)) / num_rows


def scattered(grad: Tensor) -> Tensor:
    """Return this rank's shard of the sum of the gradients of all."""
    shard = grad.new_empty(grad.numel() // dist.get_world_size())
    dist.reduce_scatter_tensor(shard, grad.flatten())
    return shard


def seven_rows_on_four(version: Version) -> None:
    """Compare the shards of a gradient with that of one device, 7 rows."""
    compare_shards(version, 7)


def eight_rows_on_four(version: Version) -> None:
    """Compare the shards of a gradient with that of one device, 8 rows."""
    compare_shards(version, 8)


def compare_shards(version: Version, num_rows: int) -> None:
    """Claim that four ranks together have the gradient of one device."""
    X, y, (weight, bias) = task(num_rows)
    weight.requires_grad_()
    squares(line(X, [weight, bias]), y).mean().backward()
    wanted = gradient(weight).flatten()
    found = torch.cat(sim.launch(shard_of_rank, 4, version, num_rows))
    ratio = found.norm() / wanted.norm()
    case = f"ranks: 4, rows: {num_rows}, lengths: {ratio:.2f} to 1"
    fact = f"the gradient is not that of one device ({case})"
    claim(torch.allclose(found, wanted, rtol=1e-10), fact)


def shard_of_rank(version: Version, num_rows: int) -> Tensor:
    """Return this rank's shard of the gradient; it has its part of rows."""
    rank = dist.get_rank()
    num_ranks = dist.get_world_size()
    X, y = (x.tensor_split(num_ranks)[rank] for x in task(num_rows)[:2])
    weight, bias = (p.to("sim") for p in task(num_rows)[2])
    weight.requires_grad_()
    losses = squares(line(X.to("sim"), [weight, bias]), y.to("sim"))
    shard: Tensor = version(losses, weight)
    return shard.cpu()


def layer_by_layer(
    X: Tensor, weights: Sequence[Tensor], shards: Sequence[Tensor]
) -> Tensor:
    """Compute the outputs; a weight is whole while its layer computes."""
    for weight, shard in zip(weights, shards):
        fill(weight, shard)
        X = torch.tanh(X @ weight)
        free(weight)
    return X


def gathered_again(
    X: Tensor, weights: Sequence[Tensor], shards: Sequence[Tensor]
) -> Tensor:
    """Gather it again when backward comes to the layer, too."""
    for weight, shard in zip(weights, shards):
        fill(weight, shard)
        X = torch.tanh(X @ weight)
        free(weight)
        X.register_hook(lambda _, w=weight, s=shard: fill(w, s))
        weight.register_post_accumulate_grad_hook(free)
    return X


def fill(weight: Tensor, shard: Tensor) -> None:
    """Give a weight its memory, and the shards of all ranks."""
    weight.untyped_storage().resize_(weight.nbytes)
    dist.all_gather_into_tensor(weight.data.view(-1), shard)


def free(weight: Tensor) -> None:
    """Take a weight's memory away."""
    weight.untyped_storage().resize_(0)


def two_layers(version: Version) -> None:
    """Compare the gradients of two layers with those of one device."""
    compare_layers(version, 2)


def one_layer(version: Version) -> None:
    """Compare the gradient of one layer with that of one device."""
    compare_layers(version, 1)


def compare_layers(version: Version, num_layers: int) -> None:
    """Claim that each of three ranks has the gradients of one device."""
    X, weights = inputs_and_weights(num_layers)
    outputs = X
    for weight in weights:
        outputs = torch.tanh(outputs @ weight.requires_grad_())
    outputs.sum().backward()
    wanted = torch.stack([gradient(weight) for weight in weights])
    for rank, found in enumerate(
        sim.launch(gradients_of_layers, 3, version, num_layers)
    ):
        fact = f"rank {rank} has other gradients (layers: {num_layers})"
        claim(torch.allclose(found, wanted, rtol=1e-10), fact)


def gradients_of_layers(version: Version, num_layers: int) -> Tensor:
    """Return the gradients of all layers; this rank has a third of each."""
    X, full = inputs_and_weights(num_layers)
    shards = [w.flatten().chunk(3)[dist.get_rank()].to("sim") for w in full]
    weights = [torch.empty_like(w, device="sim") for w in full]
    for weight in weights:
        free(weight.requires_grad_())
    version(X.to("sim"), weights, shards).sum().backward()
    return torch.stack([gradient(weight).cpu() for weight in weights])


def inputs_and_weights(num_layers: int) -> tuple[Tensor, list[Tensor]]:
    """Draw inputs, shape (2, 3), and weights, shape (3, 3)."""
    generator = torch.Generator().manual_seed(0)
    X, *weights = (
        torch.randn(size, 3, generator=generator).double()
        for size in (2, *[3] * num_layers)
    )
    return X, weights


def clip_shard(shard: nn.Parameter, max_norm: float) -> None:
    """Clip the gradient of this rank's shard, by its own norm."""
    nn.utils.clip_grad_norm_(shard, max_norm)


def clip_by_norm_of_all(shard: nn.Parameter, max_norm: float) -> None:
    """Clip it by the norm of the shards of all ranks."""
    total = gradient(shard).square().sum()
    dist.all_reduce(total)
    nn.utils.clip_grads_with_norm_(shard, max_norm, total.sqrt())


def clipped_as_a_whole(version: Version) -> None:
    """Compare with the whole gradient, clipped by plain PyTorch."""
    whole = nn.Parameter(torch.zeros(9))
    whole.grad = torch.arange(9.0) / 8
    nn.utils.clip_grad_norm_(whole, 0.5)
    shards = sim.launch(clipped, 3, version)
    found = torch.cat(shards)
    wanted = whole.grad
    norms = ", ".join(f"{shard.norm():.2f}" for shard in shards)
    claim(
        torch.allclose(found, wanted),
        "the gradient is not clipped as a whole (bound: 0.50, its norm: "
        f"{found.norm():.2f}, of the shards: {norms})",
    )


def norm_of_each_shard(version: Version) -> None:
    """See that the gradient on no rank is larger than the bound."""
    largest = max(shard.norm() for shard in sim.launch(clipped, 3, version))
    claim(bool(largest < 0.5001), f"a shard is too large ({largest:.2f})")


def clipped(version: Version) -> Tensor:
    """Return the gradient of this rank's shard, clipped to 0.5."""
    own = torch.arange(9.0).chunk(3)[dist.get_rank()] / 8
    shard = nn.Parameter(torch.zeros(3, device="sim"))
    shard.grad = own.to("sim")
    version(shard, 0.5)
    return gradient(shard).cpu()


EXHIBITS = [
    Exhibit(
        "means scattered",
        wrong=shard_of_means,
        right=shard_of_sums,
        check=seven_rows_on_four,
        careless=eight_rows_on_four,
    ),
    Exhibit(
        "freed too early",
        wrong=layer_by_layer,
        right=gathered_again,
        check=two_layers,
        careless=one_layer,
    ),
    Exhibit(
        "clipped shards",
        wrong=clip_shard,
        right=clip_by_norm_of_all,
        check=clipped_as_a_whole,
        careless=norm_of_each_shard,
    ),
]
