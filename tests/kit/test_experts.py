"""Experts that ranks share give what one device with all of them gives."""

import pytest
import torch
import torch.distributed as dist
from torch import nn

import dpkit
from dpkit.experts import (
    balance_loss,
    expert_parallel,
    moved_bias,
    own_experts,
    route_tokens,
)
from tests.kit.experts_on_ranks import (
    CASES,
    EXCHANGES,
    NUM_EXPERTS,
    NUM_TOKENS,
    all_cases,
    in_groups,
    largest_difference,
    one_device,
    run,
)

# -- equal to one device


@pytest.mark.parametrize("exchange", EXCHANGES)
@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_all_ranks_together_equal_one_device(case, size, exchange):
    """With races looked for: what is sent must not be written meanwhile."""
    with (
        dpkit.sim.machine(hosts="per_device"),
        dpkit.sim.trace(races=True) as timeline,
    ):
        ranks = dpkit.sim.launch(run, size, case, exchange)
    assert timeline.races == []
    assert largest_difference(ranks, case) < 1e-13


@pytest.mark.parametrize("exchange", EXCHANGES)
def test_in_two_processes(exchange):
    ranks = dpkit.launch(all_cases, 2, exchange, backend="gloo")
    for case in CASES:
        assert largest_difference([r[case] for r in ranks], case) < 1e-13


@pytest.mark.parametrize("case", CASES, ids=str)
def test_groups_of_ranks(case):
    """Two groups of two, each with all experts."""
    ranks = dpkit.sim.launch(in_groups, 4, case, 2)
    for number, group in enumerate((ranks[::2], ranks[1::2])):
        assert largest_difference(group, case, seed=number) < 1e-13


def test_the_cases_hold_what_they_are_for():
    """Dropped tokens, tokens that nobody takes, experts without tokens."""
    dropped = {case: one_device(case, 2)[1] for case in CASES}
    assert all((n > 0) == (case[1] is not None) for case, n in dropped.items())
    expected, _ = one_device((1, 2, True), 2)
    assert (expected["output"].abs().sum(2) == 0).any()
    assert (expected["experts"].abs().sum(1) == 0).any()


# -- routing


def test_ways_to_an_expert_stand_together():
    scores = torch.randn(50, 5)
    ways = route_tokens(scores, top=2)
    best = scores.topk(2).indices
    start = 0
    for expert, count in enumerate(ways.counts.tolist()):
        tokens = ways.token[start : start + count]
        assert ((best[tokens] == expert).sum(1) == 1).all()
        start += count
    assert start == len(ways.token) == 100
    assert ways.chosen.equal(ways.counts)


def test_weights_of_a_token_sum_to_one():
    ways = route_tokens(torch.randn(20, 4), top=3)
    sums = torch.zeros(20).index_add(0, ways.token, ways.weight)
    assert torch.allclose(sums, torch.ones(20))


def test_capacity_keeps_first_choices_and_early_tokens():
    scores = torch.tensor([[5.0, 4, 0], [5, 4, 0], [4, 5, 0]])
    ways = route_tokens(scores, top=2, capacity=2)
    # Expert 0: tokens 0 and 1 come first. Expert 1: token 2 has it as its
    # first choice; of the second choices token 0 still finds room.
    assert ways.counts.tolist() == [2, 2, 0]
    assert ways.chosen.tolist() == [3, 3, 0]
    assert ways.token.tolist() == [0, 1, 2, 0]


def test_a_bias_moves_the_choice_and_no_weight():
    scores = torch.tensor([[2.0, 1.0, 0.0]], requires_grad=True)
    ways = route_tokens(scores, bias=torch.tensor([-1.0, 0.0, 0.0]))
    assert ways.counts.tolist() == [0, 1, 0]
    assert ways.weight.item() == pytest.approx(scores.softmax(1)[0, 1].item())
    ways.weight.sum().backward()
    assert scores.grad.abs().sum() > 0


# -- balance


def test_the_balance_loss_is_least_where_experts_are_equal():
    equal = torch.eye(4).repeat(3, 1)
    assert balance_loss(equal).item() == pytest.approx(1)
    crowded = torch.tensor([[40.0, 0, 0, 0]]).repeat(9, 1)
    assert balance_loss(crowded).item() == pytest.approx(4)


def test_the_balance_loss_moves_tokens_away_from_a_busy_expert():
    scores = torch.tensor([[1.0, 0.0]]).repeat(5, 1).requires_grad_()
    balance_loss(scores).backward()
    assert (scores.grad[:, 0] > 0).all()
    assert (scores.grad[:, 1] < 0).all()


def test_the_bias_balances():
    """A router that never learns: the bias alone spreads the tokens."""
    generator = torch.Generator().manual_seed(0)
    liked = torch.tensor([2.0, 1.0, 0.0, 0.0])
    bias = torch.zeros(4)
    for _ in range(400):
        scores = torch.randn(64, 4, generator=generator) + liked
        counts = route_tokens(scores, bias=bias).counts
        bias = moved_bias(bias, counts, step=0.01)
    without = route_tokens(scores).counts
    with_it = route_tokens(scores, bias=bias).counts
    assert without.max() > 35
    assert with_it.max() < 28


# -- bytes and waiting


def test_bytes_are_those_of_the_rows_that_leave():
    def program():
        torch.manual_seed(dist.get_rank())
        scores = torch.randn(NUM_TOKENS, NUM_EXPERTS)
        x = torch.randn(NUM_TOKENS, 8, device="sim", requires_grad=True)
        ways = route_tokens(scores.to("sim"), top=2)
        experts = own_experts([nn.Identity()] * NUM_EXPERTS)
        y = expert_parallel(x, ways, experts)
        y.sum().backward()
        return ways.counts.cpu()

    with (
        dpkit.sim.machine(hosts="per_device"),
        dpkit.sim.trace() as timeline,
    ):
        counts = torch.stack(dpkit.sim.launch(program, 4))
    to_rank = counts.view(4, 4, -1).sum(2)  # from a rank, to a rank
    leaves = to_rank.sum() - to_rank.diagonal().sum()
    # There and back, and the gradients of both; and 3 counts of int64 to each
    # of three others.
    expected = 4 * int(leaves) * 8 * 4 + 4 * 3 * 3 * 8
    sent = [s for s in timeline.spans if s.name.startswith("copy to sim")]
    assert sum(span.num_bytes for span in sent) == expected


def seconds_of_forward(crowded):
    """Return how long a layer takes, from a barrier on."""
    rank, num_ranks = dist.get_rank(), dist.get_world_size()
    device = torch.device("sim", rank)
    num_tokens, num_experts, width = 2048, 8, 256
    expert = torch.arange(num_tokens) % num_experts
    if crowded:  # half of the tokens to expert 0
        expert[::2] = 0
    scores = 9 * nn.functional.one_hot(expert, num_experts).float()
    x = torch.zeros(num_tokens, width, device=device)
    mine = [
        nn.Linear(width, 4 * width, device=device)
        for _ in range(num_experts // num_ranks)
    ]
    experts = [lambda rows, f=f: f(rows)[:, :width] for f in mine]
    ways = route_tokens(scores.to(device))
    torch.sim.synchronize()
    dist.barrier()
    torch.sim.synchronize()
    start = dpkit.sim.now()
    expert_parallel(x, ways, experts)
    torch.sim.synchronize()
    return dpkit.sim.now() - start


def test_all_ranks_wait_for_the_busiest_one():
    """Half of the tokens for one expert: its rank has 5/8 of all rows."""
    with dpkit.sim.machine(hosts="per_device", accelerator="laptop-cpu"):
        even = dpkit.sim.launch(seconds_of_forward, 4, False)
        crowded = dpkit.sim.launch(seconds_of_forward, 4, True)
    assert max(even) < 1.1 * min(even)
    assert min(crowded) > 1.5 * max(even)


# -- what is refused


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"top": 4}, r"fewer experts .*\(experts: 3, top: 4\)"),
        ({"top": 0}, "top"),
        ({"capacity": 0}, "capacity"),
        ({"bias": torch.zeros(2)}, r"experts: 3, given: \(2,\)"),
    ],
)
def test_what_routing_refuses(options, words):
    with pytest.raises(ValueError, match=words):
        route_tokens(torch.zeros(5, 3), **options)


def test_scores_of_another_shape():
    with pytest.raises(ValueError, match=r"given: \(2, 5, 3\)"):
        route_tokens(torch.zeros(2, 5, 3))


@pytest.mark.parametrize(
    ("num_experts", "counted", "words"),
    [
        (5, 5, r"do not divide the experts \(experts: 5, ranks: 2\)"),
        (4, 6, r"\(counted: 6, on this rank: 2, ranks: 2\)"),
    ],
)
def test_experts_that_do_not_fit(num_experts, counted, words):
    def program():
        experts = own_experts([nn.Identity()] * num_experts)
        x = torch.zeros(3, 2, device="sim")
        ways = route_tokens(torch.zeros(3, counted, device="sim"))
        expert_parallel(x, ways, experts)

    with pytest.raises(RuntimeError, match=words) as error:
        dpkit.sim.launch(program, 2)
    assert isinstance(error.value.__cause__, ValueError)
