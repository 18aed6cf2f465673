"""Bugs of ranks that share the experts of a layer."""

import torch
import torch.distributed as dist
from torch import Tensor, nn

from dpbook.experts.programs import (
    TOP,
    make_layer,
    make_tokens,
    step_on_one_device,
)
from dpbook.museum.exhibit import Exhibit, Version, claim
from dpkit import sim
from dpkit.experts import (
    Routing,
    expert_parallel,
    own_experts,
    route_tokens,
)

RATE = 0.003


def step_of_own_tokens(module: nn.Module) -> None:
    """Take a step of a module, with the gradients that this rank has."""
    with torch.no_grad():
        for p in module.parameters():
            assert p.grad is not None
            p.sub_(RATE * p.grad)


def step_of_all_tokens(module: nn.Module) -> None:
    """Take a step of a module, with the sum of the gradients of all ranks."""
    for p in module.parameters():
        assert p.grad is not None
        dist.all_reduce(p.grad)
    step_of_own_tokens(module)


def routers_learn(version: Version) -> None:
    """See that a step changes the routers, and lowers the loss of all."""
    before = make_layer()[0].weight
    ranks = sim.launch(two_steps, 4, version)
    for rank, (_, router) in enumerate(ranks):
        claim(
            not torch.equal(router, before),
            f"the router of rank {rank} does not change",
        )
    first, second = (sum(losses[i] for losses, _ in ranks) for i in range(2))
    claim(second < first, f"the loss rises ({first:.2f} to {second:.2f})")


def router_of_one_device(version: Version) -> None:
    """Compare the routers of four ranks with that of one device."""
    before = make_layer()[0].weight.detach()
    gradient = step_on_one_device(4, capacity=None)[1].view_as(before)
    expected = before - RATE * gradient
    for rank, (_, router) in enumerate(sim.launch(two_steps, 4, version)):
        away = float((router - expected).abs().max())
        claim(
            away < 1e-12,
            f"the router of rank {rank} is {away:.3f} away from one device's",
        )


def two_steps(version: Version) -> tuple[list[float], Tensor]:
    """Return the losses of two steps on this rank, and its router between.

    ``version`` takes a step of the router.
    """
    router, experts = make_layer()
    router.to("sim")
    mine = [expert.to("sim") for expert in own_experts(experts)]
    x = make_tokens(dist.get_world_size())[dist.get_rank()].to("sim")
    losses, routers = [], []
    for _ in range(2):
        routing = route_tokens(router(x), TOP)
        loss = expert_parallel(x, routing, mine).square().sum()
        for module in (router, *mine):
            module.zero_grad()
        torch.autograd.backward(loss)
        version(router)
        for expert in mine:
            step_of_own_tokens(expert)
        losses.append(loss.item())
        routers.append(router.weight.detach().cpu())
    return losses, routers[0]


def mean_of_all(losses: Tensor, routing: Routing) -> Tensor:
    """Return the mean loss of the tokens that experts computed."""
    computed = torch.zeros_like(losses).index_fill(0, routing.token, 1.0)
    return (computed * losses).mean()


def mean_of_computed(losses: Tensor, routing: Routing) -> Tensor:
    """Return the mean loss of the tokens that experts computed."""
    computed = torch.zeros_like(losses).index_fill(0, routing.token, 1.0)
    return (computed * losses).sum() / computed.sum()


def mean_of_eight(version: Version) -> None:
    """Take the mean of eight losses, none of which is dropped."""
    losses = torch.arange(8.0)
    routing = route_tokens(torch.eye(8))
    mean = version(losses, routing).item()
    claim(mean == 3.5, f"the mean is {mean}, not 3.5")


def mean_of_ones(version: Version) -> None:
    """Take the mean of eight losses of 1, where experts have little room."""
    to_expert_0 = torch.tensor([[1.0, 0.0]]).expand(8, 2)
    for room in (8, 4, 2):
        routing = route_tokens(to_expert_0, capacity=room)
        mean = version(torch.ones(8), routing).item()
        claim(mean == 1.0, f"with room for {room} of 8 the mean is {mean}")


EXHIBITS = [
    Exhibit(
        "router alone",
        wrong=step_of_own_tokens,
        right=step_of_all_tokens,
        check=router_of_one_device,
        careless=routers_learn,
    ),
    Exhibit(
        "dropped in the mean",
        wrong=mean_of_all,
        right=mean_of_computed,
        check=mean_of_ones,
        careless=mean_of_eight,
    ),
]
