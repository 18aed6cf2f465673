"""What the chapter on experts runs: it is what it is said to be."""

import json
from statistics import mean

import pytest
import torch
import torch.distributed as dist
from torch.nn import functional as F

import dpkit
from dpbook.common.datasets import load_fashion_mnist
from dpbook.experts.programs import (
    TOP,
    all_experts,
    gradients,
    largest_difference,
    make_layer,
    make_tokens,
    step_in_groups,
    step_on_one_device,
    step_on_rank,
)
from dpbook.experts.results import (
    percent,
    plot_balance,
    routing_table,
    runs_by_remedy,
    tokens_by_expert,
)
from dpbook.experts.runs import (
    NUM_TOKENS,
    WIDTH,
    counts_by_expert,
    forward_parts,
    layer_run,
)
from dpbook.experts.training import PATCH, REMEDIES, Network, train
from dpkit.experts import expert_parallel, own_experts, route_tokens
from tests.repository import ROOT


@pytest.fixture(scope="module")
def record():
    return json.loads((ROOT / "book/_data/experts.json").read_text())


def test_all_experts_are_those_of_each_token():
    """Each token by itself, with the weights of its two experts."""
    router, experts = make_layer()
    (x,) = make_tokens(1)
    found = all_experts(x, route_tokens(router(x), TOP), experts)
    for token, y in zip(x, found, strict=True):
        probabilities = router(token).softmax(0)
        best, chosen = probabilities.topk(2)
        expected = sum(
            weight / best.sum() * experts[e](token)
            for weight, e in zip(best, chosen.tolist(), strict=True)
        )
        assert torch.allclose(y, expected, atol=1e-14)


@pytest.mark.parametrize("by_library", [False, True])
@pytest.mark.parametrize("capacity", [None, 2])
@pytest.mark.parametrize("k", [1, 2, 4])
def test_ranks_have_what_one_device_has(k, capacity, by_library):
    ranks = dpkit.sim.launch(step_on_rank, k, capacity, by_library)
    assert largest_difference(ranks, capacity) < 1e-13


@pytest.mark.parametrize(("k", "size"), [(4, 2), (4, 1), (4, 4), (2, 1)])
def test_groups_have_what_one_device_has(k, size):
    ranks = dpkit.sim.launch(step_in_groups, k, size)
    assert largest_difference(ranks, group_size=size) < 1e-13


def step_of_means():
    """Return a rank's gradients, where each rank takes a mean."""
    router, experts = make_layer()
    mine = own_experts(experts)
    modules = [router.to("sim"), *(expert.to("sim") for expert in mine)]
    x = make_tokens(2)[dist.get_rank()].to("sim")
    y = expert_parallel(x, route_tokens(router(x), TOP), mine)
    y.square().sum(1).mean().backward()
    return [gradients(module) for module in modules]


def test_means_on_each_rank():
    """Experts have sums of two ranks, which are divided by two, too."""
    _, router, *experts = step_on_one_device(2, None)
    ranks = dpkit.sim.launch(step_of_means, 2)
    num_tokens = make_tokens(2).shape[:2].numel()
    averaged = sum(rank[0] for rank in ranks) / 2
    assert torch.allclose(averaged, router / num_tokens, atol=1e-14)
    found = [gradient for rank in ranks for gradient in rank[1:]]
    for gradient, expected in zip(found, experts, strict=True):
        assert torch.allclose(gradient / 2, expected / num_tokens, atol=1e-14)


def test_a_difference_on_any_rank_is_seen():
    for rank in range(2):
        for place in range(6):  # outputs, the router, four experts
            ranks = dpkit.sim.launch(step_on_rank, 2)
            ranks[rank][place].view(-1)[-1] += 1
            assert largest_difference(ranks) > 0.9


def test_counts():
    choices = 2 * NUM_TOKENS
    for share in (1 / 8, 1 / 4, 0.3, 1 / 2):
        counts = counts_by_expert(share)
        assert sum(counts) == choices
        assert counts[0] == round(share * choices)
        assert max(counts[1:]) - min(counts[1:]) <= 1
    limited = counts_by_expert(1 / 2, capacity_factor=1.25)
    assert limited[0] == 1.25 * choices / 8
    assert limited[1:] == counts[1:]


@pytest.mark.parametrize("k", [2, 4, 8])
def test_bytes_of_even_experts(k):
    run = layer_run(counts_by_expert(), k)
    rows = 2 * NUM_TOKENS * (k - 1) // k  # that leave a rank
    counts = 8 * (8 - 8 // k)  # of the experts of other ranks, in bytes
    for rank in range(k):
        assert run.sent(rank, forward=True) == 2 * rows * WIDTH * 2 + counts
        assert run.sent(rank, forward=False) == 2 * rows * WIDTH * 2


def test_all_wait_for_the_busy_rank():
    even, busy = (
        layer_run(counts_by_expert()),
        layer_run(counts_by_expert(0.5)),
    )
    for rank in range(4):
        assert busy.forward[rank] > 2 * even.forward[rank]
    products = [forward_parts(busy, rank)["products"] for rank in range(4)]
    assert products[0] > 2 * forward_parts(even, 0)["products"]
    assert max(products[1:]) < 0.6 * forward_parts(even, 0)["products"]


def test_what_the_chapter_says_of_memory():
    """Of all experts with Adam, and of a rank with a busy one, in GB."""
    all_experts_of_mixtral = 32 * 8 * 3 * 4096 * 14336
    assert round(16 * all_experts_of_mixtral / 1e9) == 722
    for share, peak in ((1 / 8, 3.6), (1 / 2, 7.3)):
        run = layer_run(counts_by_expert(share))
        assert round(run.peak_bytes / 1e9, 1) == peak


def test_the_parts_of_forward_are_all_of_its_time():
    run = layer_run(counts_by_expert(0.25))
    for rank in range(4):
        parts = forward_parts(run, rank)
        assert all(seconds > 0 for seconds in parts.values())
        assert sum(parts.values()) == pytest.approx(run.forward[rank])


def test_a_network_returns_what_it_counts():
    torch.manual_seed(0)
    scores, of_experts, counts = Network()(torch.rand(5, 1, 28, 28))
    assert scores.shape == (5, 10)
    assert of_experts.shape == (5 * 16, 8)
    assert counts.sum() == 5 * 16


def test_the_record_is_whole(record):
    runs = runs_by_remedy(record)
    assert list(runs) == list(REMEDIES)
    for of_name in runs.values():
        assert [run["seed"] for run in of_name] == list(range(5))
        assert {len(run["busiest"]) for run in of_name} == {5}


def test_a_row_of_the_record_comes_out_again(record):
    """The first epoch of two runs, which other CPUs round differently."""
    data = load_fashion_mnist()
    for name, near in (("none", 0.05), ("bias", 0.02)):
        found = train(REMEDIES[name], 0, 1, data)
        recorded = runs_by_remedy(record)[name][0]
        assert found.busiest[0] == pytest.approx(
            recorded["busiest"][0], abs=near
        )


def test_what_the_chapter_says_of_the_record(record):
    runs = runs_by_remedy(record)
    last = {n: sum(r["busiest"][-1] for r in runs[n]) / 5 for n in runs}
    assert round(100 * last["none"]) == 60
    assert last["loss, 0.01"] > 2 / 8
    assert 1.2 / 8 < last["loss, 0.1"] < 1.3 / 8
    assert last["bias"] < 1.1 / 8
    right = {n: sum(r["accuracy"] for r in runs[n]) / 5 for n in runs}
    assert min(right, key=right.__getitem__) == "none"


def test_tokens_are_alike_before_training():
    """The first 2,000 images: the busiest expert of untrained networks."""
    images = load_fashion_mnist()[0].images[:2000]
    patches = F.unfold(images, PATCH, stride=PATCH)
    empty = (patches == 0).all(1).float().mean().item()
    assert round(100 * empty) == 18
    busiest = []
    for seed in range(5):
        torch.manual_seed(seed)
        with torch.no_grad():
            *_, counts = Network()(images)
        busiest.append((counts.max() / counts.sum()).item())
    assert round(100 * mean(busiest)) == 48


def test_percent():
    assert percent([0.1, 0.2, 0.3]) == "20.0 ± 10.0"


def test_the_picture_has_a_line_for_each_remedy(record):
    svg = plot_balance(record)._repr_svg_()
    for name in REMEDIES:
        assert name in svg


def test_the_tokens_of_each_expert():
    """Two tokens, both to expert 1 first; expert 2 gets none."""
    scores = torch.tensor([[0.2, 0.8, 0.0], [0.1, 0.9, 0.0]]).log()
    routing = route_tokens(scores, top=2)
    assert tokens_by_expert(routing) == [[0, 1], [0, 1], []]
    text = str(routing_table(routing))
    assert "0.20, 0.10" in text
    assert "0.80, 0.90" in text
