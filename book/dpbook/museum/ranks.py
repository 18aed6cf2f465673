"""Bugs of ranks that wait for each other.

Where no rank of ``dpkit.sim.launch`` can go on, its error tells why at once.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from dpbook.museum.exhibit import Exhibit, Version, claim
from dpkit import sim

DDP = DistributedDataParallel
Batches = Sequence[Tensor]
Metrics = dict[str, Tensor]
# What each of three ranks has measured.
MEASURED = {"loss": 0.5, "accuracy": 0.75, "right": [3.0, 1.0, 2.0]}


def stop_if_bad(ddp: DDP, X: Tensor) -> None:
    """Raise an error on the rank whose loss is NaN."""
    loss = ddp(X).square().mean()
    if loss.isnan():
        raise FloatingPointError("the loss is NaN")
    loss.backward()


def stop_together(ddp: DDP, X: Tensor) -> None:
    """Raise an error on all ranks if the loss of one is NaN."""
    loss = ddp(X).square().mean()
    num_bad = loss.isnan().long()
    dist.all_reduce(num_bad)
    if num_bad:
        raise FloatingPointError("a loss is NaN")
    loss.backward()


def one_bad_row(version: Version) -> None:
    """Make the row of rank 1 NaN: all three ranks stop."""
    stop_on_all(version, torch.tensor([1.0, torch.nan, 1.0]))


def bad_rows(version: Version) -> None:
    """Make the rows of all three ranks NaN: all stop."""
    stop_on_all(version, torch.full((3,), torch.nan))


def stop_on_all(version: Version, rows: Tensor) -> None:
    """Claim that every rank stops; each has a row, of one value."""
    stopped = sim.launch(stops, len(rows), version, rows)
    claim(all(stopped), f"a rank goes on (they stop: {stopped})")


def stops(version: Version, rows: Tensor) -> bool:
    """Return whether this rank stops."""
    try:
        version(wrapped(), rows[dist.get_rank()].view(1, 1).to("sim"))
    except FloatingPointError:
        return True
    return False


def wrapped() -> DDP:
    """Return a layer of one input in PyTorch's wrapper."""
    torch.manual_seed(0)
    return DistributedDataParallel(nn.Linear(1, 1).to("sim"))


def train_on_its_own(ddp: DDP, optimizer: Optimizer, batches: Batches) -> None:
    """Take a step with each batch that this rank has."""
    for X in batches:
        step(ddp, optimizer, X)


def train_equally(ddp: DDP, optimizer: Optimizer, batches: Batches) -> None:
    """Take as many steps as the rank that has fewest batches."""
    count = torch.tensor(len(batches), device=ddp.device)
    dist.all_reduce(count, op=dist.ReduceOp.MIN)
    for X in batches[: int(count)]:
        step(ddp, optimizer, X)


def train_joined(ddp: DDP, optimizer: Optimizer, batches: Batches) -> None:
    """Take part in the steps of others, too, when there are no more."""
    with ddp.join():
        for X in batches:
            step(ddp, optimizer, X)


def step(ddp: DDP, optimizer: Optimizer, X: Tensor) -> None:
    """Take a step."""
    optimizer.zero_grad()
    ddp(X).square().mean().backward()
    optimizer.step()


def seven_batches(version: Version) -> None:
    """Deal 7 batches to three ranks: all end, and are replicas still."""
    train_on(version, 7)


def six_batches(version: Version) -> None:
    """Deal 6 batches to three ranks."""
    train_on(version, 6)


OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {
    "SGD": torch.optim.SGD,
    "SGD with momentum": partial(torch.optim.SGD, momentum=0.9),
    "Adam": torch.optim.Adam,
}


def train_on(version: Version, num_batches: int, name: str = "Adam") -> None:
    """Train on three ranks; raise AssertionError unless they end alike.

    They have to take a step, and to end with the same weight and the same
    state of the optimizer.

    Args:
        version: What trains a rank, right or wrong.
        num_batches: How many batches all ranks have together; each trains on
            every third.
        name: The optimizer, a name in ``OPTIMIZERS``.
    """
    batches = torch.arange(2.0 * num_batches).view(num_batches, 2, 1) / 10
    start = sim.launch(values_after, 3, version, [], name)
    found = sim.launch(values_after, 3, version, batches, name)
    claim(start != found, f"no step was taken (batches: {num_batches})")
    for rank, values in enumerate(found):
        for what, value in values.items():
            own = f"{what} {value:.3f} on rank {rank}"
            first = f"{found[0][what]:.3f} on rank 0"
            claim(value == found[0][what], f"{own}, {first}")


def values_after(
    version: Version, batches: Batches, name: str
) -> dict[str, float]:
    """Train this rank on every third batch; return what its replica holds."""
    ddp = wrapped()
    weight = ddp.module.weight
    optimizer = OPTIMIZERS[name]([weight], lr=0.1)
    own = batches[dist.get_rank() :: dist.get_world_size()]
    version(ddp, optimizer, [X.to("sim") for X in own])
    held = {what: float(x) for what, x in optimizer.state[weight].items()}
    return {"weight": weight.item()} | held


def in_own_order(metrics: Metrics) -> None:
    """Add up metrics over ranks, in the order in which they came."""
    for metric in metrics.values():
        dist.all_reduce(metric)


def in_order_of_names(metrics: Metrics) -> None:
    """Add them up in an order that is the same on all ranks."""
    for name in sorted(metrics):
        dist.all_reduce(metrics[name])


def shapes_in_two_orders(version: Version) -> None:
    """Add up a number and a list; on rank 1 they came the other way round."""
    for rank, found in enumerate(sums(version, "loss", "right")):
        wanted = {"loss": 1.5, "right": [9.0, 3.0, 6.0]}
        claim(found == wanted, f"rank {rank} has other sums ({found})")


def numbers_in_two_orders(version: Version) -> None:
    """Add up two numbers; see that all ranks end, with all that there was."""
    for found in sums(version, "loss", "accuracy"):
        total = sum(found.values())
        claim(total == 3.75, f"something is lost (total: {total})")


def sums(version: Version, *names: str) -> list[dict[str, Any]]:
    """Return the sums that each of three ranks has of these metrics."""
    return sim.launch(summed, 3, version, names)


def summed(version: Version, names: Sequence[str]) -> dict[str, Any]:
    """Add up metrics, which on rank 1 came the other way round."""
    names = names[::-1] if dist.get_rank() == 1 else names
    metrics = {n: torch.tensor(MEASURED[n], device="sim") for n in names}
    version(metrics)
    return {name: metric.tolist() for name, metric in metrics.items()}


def gather_rows(x: Tensor) -> Tensor:
    """Gather the rows of all ranks."""
    out = x.new_empty(dist.get_world_size() * len(x), *x.shape[1:])
    dist.all_gather_into_tensor(out, x)
    return out


def gather_padded(x: Tensor) -> Tensor:
    """Gather rows with zeros below, as many in all as the longest part."""
    counts = gather_rows(torch.tensor([len(x)], device=x.device)).tolist()
    padded = F.pad(x, (0, 0, 0, max(counts) - len(x)))
    parts = gather_rows(padded).split(max(counts))
    return torch.cat([part[:n] for part, n in zip(parts, counts)])


def seven_rows(version: Version) -> None:
    """Gather 7 rows from three ranks: each has all, in their order."""
    gather(version, 7)


def six_rows(version: Version) -> None:
    """Gather 6 rows from three ranks."""
    gather(version, 6)


def gather(version: Version, num_rows: int) -> None:
    """Claim that each rank gathers the rows that were dealt out."""
    rows = torch.arange(2.0 * num_rows).view(num_rows, 2)
    for rank, found in enumerate(sim.launch(gathered, 3, version, rows)):
        fact = f"rank {rank} has other rows ({found.tolist()})"
        claim(torch.equal(found, rows), fact)


def gathered(version: Version, rows: Tensor) -> Tensor:
    """Gather the parts of rows, of which this rank has its own."""
    own = rows.tensor_split(dist.get_world_size())[dist.get_rank()]
    found: Tensor = version(own.to("sim"))
    return found.cpu()


EXHIBITS = [
    Exhibit(
        "error alone",
        wrong=stop_if_bad,
        right=stop_together,
        check=one_bad_row,
        careless=bad_rows,
    ),
    Exhibit(
        "uneven batches",
        wrong=train_on_its_own,
        right=train_equally,
        check=seven_batches,
        careless=six_batches,
    ),
    Exhibit(
        "another order",
        wrong=in_own_order,
        right=in_order_of_names,
        check=shapes_in_two_orders,
        careless=numbers_in_two_orders,
    ),
    Exhibit(
        "ragged batch",
        wrong=gather_rows,
        right=gather_padded,
        check=seven_rows,
        careless=six_rows,
    ),
]
