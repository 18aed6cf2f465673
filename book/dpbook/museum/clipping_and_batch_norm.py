"""Bugs of what depends on all shards: clipping by a norm, batch norm."""

import copy
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dpbook.museum.exhibit import Devices, Exhibit, Version, claim
from dpbook.museum.replicas import flat
from dpkit import Pipeline, clip_grad_norm, devices, scatter, split_layers
from dpkit.batch_norm import Moments, combine, moments, update_running


def _gradient(params: Iterator[nn.Parameter] | Sequence[Tensor]) -> Tensor:
    return flat([p.grad for p in params if p.grad is not None])


def clip_all(pipeline: Pipeline, max_norm: float) -> None:
    """Clip the gradients of all stages, by the norm of all parameters."""
    clip_grad_norm(pipeline.parameters(), max_norm)


def clip_without_copies(pipeline: Pipeline, max_norm: float) -> None:
    """Clip them by the norm in which each parameter counts once."""
    clip_grad_norm(pipeline.parameters(), max_norm, pipeline.copies)


def a_bound_that_clips(version: Version) -> None:
    """Compare with one device, where the bound is below the norm."""
    compare_clipped(version, max_norm=0.1)


def a_bound_out_of_reach(version: Version) -> None:
    """Compare with one device, where nothing is clipped."""
    compare_clipped(version, max_norm=100.0)


def compare_clipped(version: Version, max_norm: float) -> None:
    """Compare a tied weight's gradient with that of one device."""
    torch.manual_seed(0)
    words, following = torch.randint(20, (2, 12))
    model = _tied()
    F.cross_entropy(model(words), following).backward()
    nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    pipeline = Pipeline(
        split_layers(_tied(), 2), devices(2), "gpipe", num_micro_batches=3
    )
    pipeline.forward_backward(words, following, F.cross_entropy)
    version(pipeline, max_norm)
    wanted = _gradient([next(model.parameters())])
    for s, p in enumerate(pipeline.copies[0]):
        found = _gradient([p])
        claim(
            torch.allclose(found, wanted, rtol=1e-9),
            f"the gradient of the shared weight is not that of one device "
            f"(copy: {s}, bound: {max_norm:.2f}, lengths: "
            f"{found.norm() / wanted.norm():.2f} to 1)",
        )


def _tied() -> nn.Sequential:
    """Return a model whose first and last layer share their weight."""
    torch.manual_seed(1)
    embedding = nn.Embedding(20, 6)
    scores = nn.Linear(6, 20, bias=False)
    scores.weight = embedding.weight
    return nn.Sequential(embedding, nn.Linear(6, 6), scores).double()


def statistics_of_replica_0(
    norm: nn.BatchNorm1d, batches: Sequence[Tensor], devices: Devices
) -> nn.BatchNorm1d:
    """Normalize the rows of each device; keep the batch norm of the first."""
    replicas = [copy.deepcopy(norm).to(device) for device in devices]
    for X in batches:
        for replica, shard in zip(replicas, scatter(X, devices)):
            replica(shard)
    return replicas[0].cpu()


def statistics_of_all(
    norm: nn.BatchNorm1d, batches: Sequence[Tensor], devices: Devices
) -> nn.BatchNorm1d:
    """Keep the statistics of whole batches, combined from their shards."""
    for X in batches:
        parts = [moments(shard) for shard in scatter(X, devices)]
        on_cpu = [Moments(*(x.cpu() for x in part)) for part in parts]
        update_running(norm, combine(on_cpu))
    return norm


def evaluation_after_sorted_rows(version: Version) -> None:
    """Normalize in evaluation, after batches whose rows were sorted."""
    compare_evaluation(version, [X.sort(dim=0).values for X in _batches()])


def evaluation_after_mixed_rows(version: Version) -> None:
    """Normalize in evaluation, after batches in random order."""
    compare_evaluation(version, _batches())


def _batches() -> list[Tensor]:
    """Draw 20 batches of 200 rows."""
    generator = torch.Generator().manual_seed(0)
    return list(torch.randn(20, 200, 3, generator=generator))


@torch.no_grad()
def compare_evaluation(version: Version, batches: Sequence[Tensor]) -> None:
    """Compare with a batch norm that has seen the whole batches."""
    plain = nn.BatchNorm1d(3)
    for X in batches:
        plain(X)
    kept = version(nn.BatchNorm1d(3), batches, devices(2))
    X = torch.cat(list(batches))
    away = float((kept.eval()(X) - plain.eval()(X)).abs().mean())
    found = f"the mean difference: {away:.1f}, their standard deviation: 1"
    fact = f"in evaluation outputs are not those of one device ({found})"
    claim(away < 0.2, fact)


EXHIBITS = [
    Exhibit(
        "counted twice",
        wrong=clip_all,
        right=clip_without_copies,
        check=a_bound_that_clips,
        careless=a_bound_out_of_reach,
    ),
    Exhibit(
        "replica 0",
        wrong=statistics_of_replica_0,
        right=statistics_of_all,
        check=evaluation_after_sorted_rows,
        careless=evaluation_after_mixed_rows,
    ),
]
