"""Bugs of ranks on a mesh of two dimensions, ``fsdp`` and ``tp``.

Each exhibit has another version of one part of the same program,
:func:`learn`: how the mesh is made, which rows a rank reads, how it clips.
"""

import logging
from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn import functional as F

from dpbook.common.passes import start_together
from dpbook.museum.exhibit import Exhibit, Version, claim
from dpkit import sim, synchronize
from dpkit.tables import Table, table

# DTensor warns where it sends along two dimensions, one after the other.
logging.getLogger("torch.distributed.tensor._redistribute").setLevel("ERROR")
MakeMesh = Callable[[], DeviceMesh]
Rows = Callable[[DeviceMesh, Tensor], Tensor]
Clip = Callable[[list[nn.Parameter], float], object]
BOUND = 0.1  # less than the norm of each step, so that it always clips
LR = 0.01
WIDTH, NUM_ROWS = 8, 8
LARGE_WIDTH, MANY_ROWS = 4096, 32_768
COLLECTIVES = ("allgather", "reduce_scatter", "allreduce")
#: A100s, joined by NVLink in a node; InfiniBand joins the nodes.
MACHINE: dict[str, Any] = {
    "accelerator": "a100",
    "link": "nvlink3",
    "network": "infiniband200",
    "num_devices": 4,
    "backing": "meta",
    "hosts": "per_device",
}


def rows_by_rank(mesh: DeviceMesh, batch: Tensor) -> Tensor:
    """Return the rows of a batch that this rank reads."""
    parts = mesh["fsdp"].size()
    return batch.chunk(parts)[dist.get_rank() % parts]


def rows_by_place(mesh: DeviceMesh, batch: Tensor) -> Tensor:
    """Return the rows of a batch that this rank reads."""
    parts = mesh["fsdp"].size()
    return batch.chunk(parts)[mesh.get_local_rank("fsdp")]


def clip_by_own_norm(parameters: list[nn.Parameter], bound: float) -> None:
    """Clip gradients by the norm of the parts that this rank has."""
    norm = nn.utils.get_total_norm([own_part(p) for p in parameters])
    nn.utils.clip_grads_with_norm_(parameters, bound, norm)


def clip_by_whole_norm(parameters: list[nn.Parameter], bound: float) -> None:
    """Clip gradients by the norm of all parts, which DTensor adds up."""
    nn.utils.clip_grad_norm_(parameters, bound)


def own_part(p: nn.Parameter) -> Tensor:
    """Return the part of a gradient that lies on this rank."""
    assert isinstance(p.grad, DTensor)
    part: Tensor = p.grad.to_local()
    return part


def groups_dealt_out() -> DeviceMesh:
    """Make a mesh of four ranks, dealt out to two tensor groups in turn."""
    ranks = torch.tensor([[0, 2], [1, 3]])  # a line is a tensor group
    return DeviceMesh("sim", ranks, mesh_dim_names=("fsdp", "tp"))


def tensor_first() -> DeviceMesh:
    """Make a mesh of four ranks, the dimension of tensor groups first."""
    return init_device_mesh("sim", (2, 2), mesh_dim_names=("tp", "fsdp"))


def tensor_last() -> DeviceMesh:
    """Make a mesh of four ranks; those of a tensor group are neighbours."""
    return init_device_mesh("sim", (2, 2), mesh_dim_names=("fsdp", "tp"))


def make_net(width: int, num_pairs: int = 1) -> nn.Sequential:
    """Make pairs of dense layers, equal on all ranks."""
    torch.manual_seed(0)
    dense = partial(nn.Linear, width, width, bias=False)
    return nn.Sequential(
        *(
            nn.Sequential(dense(), nn.Tanh(), dense(), nn.Tanh())
            for _ in range(num_pairs)
        )
    )


def cut(net: nn.Sequential, mesh: DeviceMesh) -> None:
    """Cut each pair of layers over a tensor group, and each piece by fsdp."""
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    for pair in net:
        parallelize_module(pair, mesh["tp"], plan)
        fully_shard(pair, mesh=mesh["fsdp"])
    fully_shard(net, mesh=mesh["fsdp"])


class Learned(NamedTuple):
    """What three steps have left on a rank, or on one device."""

    losses: list[float]  # of each step, over the rows of the rank
    parameters: dict[str, Tensor]  # whole, by name


def learn(make_mesh: MakeMesh, rows: Rows, clip: Clip | None) -> Learned:
    """Take three steps on a mesh; every rank calls it."""
    mesh = make_mesh()
    net = make_net(WIDTH).double().to("sim")
    cut(net, mesh)
    X, y = (rows(mesh, batch).to("sim") for batch in task())
    return three_steps(net, X, y, clip)


def three_steps(
    net: nn.Sequential, X: Tensor, y: Tensor, clip: Clip | None
) -> Learned:
    """Take three steps of AdamW on these rows."""
    optimizer = torch.optim.AdamW(net.parameters(), LR)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = F.mse_loss(net(X), y)
        torch.autograd.backward(loss)
        if clip:
            clip(list(net.parameters()), BOUND)
        optimizer.step()
        losses.append(loss.item())
    parameters = {n: whole(p).cpu() for n, p in net.named_parameters()}
    return Learned(losses, parameters)


def whole(x: Tensor) -> Tensor:
    """Return a tensor without its gradient, whole if it lies in parts."""
    with torch.no_grad():
        return x.full_tensor() if isinstance(x, DTensor) else x.detach()


def task() -> list[Tensor]:
    """Draw inputs and targets, each of shape (8, 8)."""
    generator = torch.Generator().manual_seed(1)
    drawn = torch.randn(2, NUM_ROWS, WIDTH, generator=generator)
    return list(drawn.double())


@cache
def on_ranks(
    make_mesh: MakeMesh = tensor_last,
    rows: Rows = rows_by_place,
    clip: Clip | None = None,
) -> list[Learned]:
    """Take three steps on four ranks."""
    return sim.launch(learn, 4, make_mesh, rows, clip)


def on_one_device(clips: bool) -> Learned:
    """Take the same steps without a mesh."""
    X, y = task()
    clip = nn.utils.clip_grad_norm_ if clips else None
    return three_steps(make_net(WIDTH).double(), X, y, clip)


def mean_losses(ranks: list[Learned]) -> list[float]:
    """Return the loss of each step, over all ranks."""
    steps = zip(*(rank.losses for rank in ranks), strict=True)
    return [sum(step) / len(ranks) for step in steps]


def loss_of(parameters: dict[str, Tensor]) -> float:
    """Return the loss of all rows on one device, by these parameters."""
    net = make_net(WIDTH).double()
    net.load_state_dict(parameters)
    X, y = task()
    return F.mse_loss(net(X), y).item()


def compare_parameters(ranks: list[Learned], clips: bool) -> None:
    """Claim that each rank finds the parameters of one device."""
    expected = on_one_device(clips).parameters
    for rank, (_, found) in enumerate(ranks):
        away = max(
            float(
                (p - expected[name]).abs().max() / expected[name].abs().max()
            )
            for name, p in found.items()
        )
        losses = f"{loss_of(found):.2f}, one device's: {loss_of(expected):.2f}"
        claim(
            away < 1e-12,
            f"rank {rank}: a parameter is {away:.0e} away from one device's "
            f"(loss of all rows: {losses})",
        )


def loss_falls(version: Version) -> None:
    """See that the mean loss of four ranks falls in three steps."""
    first, *_, last = mean_losses(on_ranks(rows=version))
    claim(last < first, f"the loss rises ({first:.3f} to {last:.3f})")


def parameters_of_one_device(version: Version) -> None:
    """Compare the parameters of four ranks with those of one device."""
    compare_parameters(on_ranks(rows=version), clips=False)


def losses_to_five_digits(version: Version) -> None:
    """Compare the losses of three clipped steps with those of one device."""
    expected = on_one_device(clips=True).losses
    for a, b in zip(mean_losses(on_ranks(clip=version)), expected):
        claim(abs(a / b - 1) < 1e-5, f"a loss is {a:.6f}, not {b:.6f}")


def parameters_after_clipping(version: Version) -> None:
    """Compare the parameters after three clipped steps with one device's."""
    compare_parameters(on_ranks(clip=version), clips=True)


def three_free_steps(version: Version) -> None:
    """Compare the parameters after three steps that clip nothing."""
    compare_parameters(on_ranks(version), clips=False)


def three_clipped_steps(version: Version) -> None:
    """Compare the parameters after three steps, with clipping switched on."""
    clip = clip_by_whole_norm
    compare_parameters(on_ranks(version, clip=clip), clips=True)


def on_two_nodes(version: Version) -> None:
    """Hold a step on two nodes of two devices against one on a single node."""
    one, two = (large_step(version, nodes).seconds for nodes in (1, 2))
    claim(
        two < 1.25 * one,
        f"a step takes {two / one:.1f} times as long on two nodes "
        f"({1e3 * one:.1f} ms on one node, {1e3 * two:.1f} ms on two)",
    )


class Step(NamedTuple):
    """Forward and backward of four large layers on four A100s."""

    seconds: float  # simulated
    num_bytes: int  # that all devices send


@cache
def large_step(make_mesh: MakeMesh, nodes: int) -> Step:
    """Take a step without values, on four devices of one or two nodes."""
    machine = MACHINE | {"ranks_per_node": 4 // nodes}
    with sim.machine(**machine), sim.trace() as timeline:
        found = sim.launch(times_of_rank, 4, make_mesh, algorithm="library")
    begin = min(begin for begin, _ in found)
    sent = [
        span.num_bytes
        for span in timeline.spans
        if span.name in COLLECTIVES and span.start >= begin
    ]
    return Step(max(end for _, end in found) - begin, sum(sent))


def times_of_rank(make_mesh: MakeMesh) -> tuple[float, float]:
    """Return when forward begins on this rank, and when backward ends."""
    mesh = make_mesh()
    with torch.device("sim"):
        net = make_net(LARGE_WIDTH, num_pairs=2).bfloat16()
        x = torch.zeros(MANY_ROWS // 2, LARGE_WIDTH, dtype=torch.bfloat16)
    cut(net, mesh)
    begin = start_together(x.device)
    torch.autograd.backward(F.mse_loss(net(x), x))
    synchronize([x.device])
    return begin, sim.now()


def steps_on_nodes() -> Table:
    """Return what both meshes send, and how long their steps take."""
    return table(
        [
            {
                "tensor groups": groups,
                "sent, GB": f"{large_step(mesh, 2).num_bytes / 1e9:.2f}",
                "one node, ms": f"{1e3 * large_step(mesh, 1).seconds:.1f}",
                "two nodes, ms": f"{1e3 * large_step(mesh, 2).seconds:.1f}",
            }
            for groups, mesh in (
                ("0 and 2, 1 and 3", groups_dealt_out),
                ("0 and 1, 2 and 3", tensor_last),
            )
        ]
    )


EXHIBITS = [
    Exhibit(
        "rows by rank",
        wrong=rows_by_rank,
        right=rows_by_place,
        check=parameters_of_one_device,
        careless=loss_falls,
    ),
    Exhibit(
        "clipped on a mesh",
        wrong=clip_by_own_norm,
        right=clip_by_whole_norm,
        check=parameters_after_clipping,
        careless=losses_to_five_digits,
    ),
    Exhibit(
        "groups across nodes",
        wrong=groups_dealt_out,
        right=tensor_last,
        check=on_two_nodes,
        careless=three_free_steps,
    ),
    Exhibit(
        "tensor outermost",
        wrong=tensor_first,
        right=tensor_last,
        check=three_clipped_steps,
        careless=three_free_steps,
    ),
]
