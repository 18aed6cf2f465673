"""What the chapter on long sequences runs: it is what it is said to be."""

import pytest
import torch

import dpkit
from dpbook.long_sequences.pictures import draw_scores, forward_of
from dpbook.long_sequences.programs import (
    attend,
    gradients_in_parts,
    gradients_of_one_device,
    largest_difference,
    whole,
)
from dpbook.long_sequences.runs import (
    attention_rate,
    attention_run,
    library_run,
)

LENGTH = 2**13


@pytest.mark.parametrize("way", ["ring", "balanced ring", "ulysses"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("k", [2, 4])
def test_ranks_have_what_one_device_has(way, causal, k):
    ranks = dpkit.sim.launch(attend, k, way, causal)
    assert largest_difference(ranks, way, causal) < 1e-13


def test_a_difference_on_any_rank_is_seen():
    for rank in range(2):
        for place in range(4):
            ranks = dpkit.sim.launch(attend, 2, "ring", True)
            ranks[rank][place][0, 0, 0, 0] += 1
            assert largest_difference(ranks, "ring", True) > 0.9
    assert len(whole()) == 4


def test_a_model_in_parts_has_the_gradients_of_one_device():
    expected = gradients_of_one_device()
    for found in dpkit.sim.launch(gradients_in_parts, 2):
        for x, y in zip(found, expected, strict=True):
            assert torch.allclose(x, y, rtol=0, atol=1e-14)


def test_the_parts_of_a_run_are_all_of_its_time():
    run = attention_run("balanced ring", LENGTH, 2)
    for rank in range(2):
        parts = run.kernels(rank), run.others(rank), run.waiting(rank)
        assert all(part >= 0 for part in parts)
        assert sum(parts) == pytest.approx(run.forward[rank])


def test_a_pass_is_not_counted_in_the_other():
    run = attention_run("ring", LENGTH, 4)
    numbers = 2 * 4096 * LENGTH // 4
    assert run.sent(2, forward=True) == 2 * numbers * 3
    assert run.sent(2, forward=False) == 2 * numbers * 3 + 4 * numbers * 4


@pytest.mark.parametrize("method", ["allgather", "alltoall"])
def test_pytorchs_ring_takes_about_as_long_as_ours(method):
    ours = attention_run("balanced ring", 2**15, 4)
    theirs = library_run(2**15, 4, method)
    for a, b in [
        (ours.forward, theirs.forward),
        (ours.backward, theirs.backward),
    ]:
        assert 0.8 < max(b) / max(a) < 1.05
    assert theirs.kernels(0) == pytest.approx(ours.kernels(0), rel=0.02)


def test_pictures():
    svg = draw_scores(3)._repr_svg_()
    assert svg.count("rank 2") >= 1
    run = attention_run("ring", LENGTH, 2)
    timeline = forward_of({"in order": run})
    rows = {(span.device, span.stream) for span in timeline.spans}
    assert rows == {
        (f"in order, rank {rank}", stream)
        for rank in range(2)
        for stream in ("computes", "receives")
    }


def test_the_rate_of_attention_is_that_of_the_clock():
    kernel, rate = attention_rate("a100")
    assert kernel == "flash"
    alone = attention_run("one device", 2**17, 1)
    flops = 2 * 2**34 * 4096
    assert flops / alone.kernels(0) == pytest.approx(rate, rel=0.02)
