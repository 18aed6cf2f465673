"""Our engines beside PyTorch's: equal gradients, and explained times."""

from functools import partial

import pytest
import torch
import torch.distributed as dist
from torch.distributed import pipelining

from dpbook.collectives.runs import timed
from dpbook.common.engine_pairs import (
    NARROW,
    counts_of,
    engines_table,
    traced,
)
from dpbook.layer_partitioning.engine import split_layers_pair
from dpbook.network_partitioning.engine import pipeline_pair
from dpbook.network_partitioning.runs import deep_network
from dpbook.overlap.engines import data_parallel_pair, our_step
from dpkit import sim
from dpkit.sim.hardware import HOSTS
from tests.runs.test_works import overlapping

MOST = 0.03  # a larger difference of times is explained by what is counted
NUM_PARAMS = 24  # of the network that replicas train


def counted(pair, name, device=0):
    """Return how often our engine issues an operation, and PyTorch's."""
    steps = pair.ours, pair.theirs
    found = [counts_of(step.timeline, device).get(name) for step in steps]
    return [one.times if one else 0 for one in found]


PAIRS = {
    "replicas": partial(data_parallel_pair, width=512),
    "views": partial(data_parallel_pair, views=True, width=512),
    # On a slow device, so that the kernels take longer than their launches.
    "layers": partial(split_layers_pair, width=512, accelerator="k80"),
    "1f1b": partial(pipeline_pair, "1f1b", pipelining.Schedule1F1B),
    "zb-h1": partial(
        pipeline_pair, "zb-h1", pipelining.ScheduleInterleavedZeroBubble
    ),
    "gpipe": partial(pipeline_pair, "gpipe", pipelining.ScheduleGPipe),
}


@pytest.fixture(scope="module")
def pairs():
    return {name: make() for name, make in PAIRS.items()}


def test_both_leave_the_same_gradients(pairs):
    for pair in pairs.values():
        assert 0 <= pair.away < 1e-4  # no NaN: no gradient is all zeros


def test_times_are_those_of_wide_layers_and_gradients_of_narrow_ones():
    """Of 264 values, on machines with values and without."""
    pair = data_parallel_pair(world_size=2, width=264)
    assert pair.ours.gradients[0].shape == (NARROW, NARROW)
    torch.manual_seed(0)
    net = deep_network(264, depth=12)
    with sim.machine(hosts="per_device"):
        step = our_step(net, *torch.randn(2, 128, 264), 2)
    assert step.timeline.spans == pair.ours.timeline.spans


def test_some_take_the_same_time(pairs):
    assert abs(pairs["layers"].slower) < MOST
    assert abs(pairs["1f1b"].slower) < MOST


def test_pytorch_s_reducer_sends_beside_backward_as_ours_does():
    pair = data_parallel_pair()
    ours, theirs = (
        overlapping(step.timeline, "sim:0")
        for step in (pair.ours, pair.theirs)
    )
    assert theirs > 0.9 * ours > 0


def test_replicas_differ_by_a_kernel_for_each_gradient(pairs):
    """PyTorch's divides each gradient, and copies each mean back."""
    plain, views = pairs["replicas"], pairs["views"]
    for pair in (plain, views):
        assert counted(pair, "mul") == [0, NUM_PARAMS]
        assert counted(pair, "as_strided") == [0, NUM_PARAMS]
        assert counted(pair, "div_") == [2, 0]  # a bucket each
    assert counted(plain, "copy_") == [NUM_PARAMS, NUM_PARAMS]
    assert counted(views, "copy_") == [NUM_PARAMS, 0]
    assert plain.slower > MOST
    assert views.slower < -MOST


def test_pytorch_s_engine_copies_each_bucket_back_when_it_has_its_sum():
    """Three buckets of 2, 14 and 8 gradients; only the last are copied late.

    If its stream waited for all buckets at once, all 24 would be.
    """
    pair = data_parallel_pair()
    spans = [s for s in pair.theirs.timeline.spans if s.device == "sim:0"]
    sent = [s.end for s in spans if s.name.startswith("copy to")]
    copied = sorted(s.start for s in spans if s.name == "copy_")
    assert len(copied) == NUM_PARAMS
    assert sum(start > max(sent) - 1e-9 for start in copied) == 8
    # Three rings of six messages each: the second ends with the twelfth.
    assert copied[2] > sorted(sent)[11] - 1e-9
    assert abs(pair.slower) < MOST


def test_the_counts_are_all_that_the_host_does_more(pairs):
    """In backward, kernels of 5 µs and views of 1.5 µs."""
    host = HOSTS["eager"]

    def backward(step):
        return sum(
            span.end - span.start
            for span in step.timeline.spans
            if (span.device, span.stream) == ("host:0", "backward")
        )

    for name, more in (("replicas", NUM_PARAMS), ("views", 0)):
        pair = pairs[name]
        kernels = more * host.backward_launch_seconds
        views = NUM_PARAMS * host.view_seconds
        found = backward(pair.theirs) - backward(pair.ours)
        assert found == pytest.approx(kernels + views, abs=1e-12)


def test_zero_bubbles_differ_by_the_second_backward_of_relus(pairs):
    pair = pairs["zb-h1"]
    ours, theirs = counted(pair, "threshold_backward", device=1)
    assert ours == 2 * theirs == 32
    assert -0.06 < pair.slower < -MOST


def test_what_is_posted_to_receive_holds_up_no_send(pairs):
    """A rank posts receipts ahead; what it sends does not wait for them."""
    assert pairs["gpipe"].slower < 0.15


def test_a_table_has_them_all(pairs):
    table = engines_table(pairs.values())
    assert [row["step"] for row in table.rows][3:] == [
        "1f1b",
        "zb-h1",
        "gpipe",
    ]
    assert len(table.rows) == len(PAIRS)
    assert {row["gradients differ by"] for row in table.rows} == {
        "< 1e-5"
    }  # of rounding


@pytest.mark.parametrize(
    "make",
    [
        lambda: data_parallel_pair(width=64),
        lambda: split_layers_pair(width=64, rows=16),
        lambda: pipeline_pair(
            "1f1b",
            pipelining.Schedule1F1B,
            world_size=2,
            num_micro_batches=2,
            width=64,
        ),
    ],
    ids=["replicas", "layers", "1f1b"],
)
def test_two_runs_take_the_same_times(make):
    first, second = (make().theirs.timeline.spans for _ in range(2))
    assert first
    assert first == second


def timed_on_ranks(algorithm, world_size, num_bytes, **machine):
    """Time PyTorch's all_reduce on ranks, without numbers."""

    def reduce():
        x = torch.empty(num_bytes // 4, device="sim")
        return traced(lambda: dist.all_reduce(x))

    with sim.machine(backing="meta", hosts="per_device", **machine):
        return sim.launch(reduce, world_size, algorithm=algorithm)[0]


@pytest.mark.parametrize("num_bytes", [16_000, 16_000_000])
def test_a_librarys_allreduce_is_launched_once_more_on_ranks(num_bytes):
    """By the rank, and by the thread of its host that sends."""
    machine = {"accelerator": "a100", "link": "nvlink3"}
    ours = timed("library", 8, num_bytes, hosts="per_device", **machine)
    theirs = timed_on_ranks("library", 8, num_bytes, **machine)
    more = HOSTS["eager"].backward_launch_seconds
    assert theirs.makespan - ours.makespan == pytest.approx(more, abs=1e-9)


def test_a_thread_launches_the_messages_of_ranks():
    """35 launches of 8 µs by our Python, of 5 µs by that thread."""
    ours = timed("ring", 8, 16_000, hosts="per_device")
    theirs = timed_on_ranks("ring", 8, 16_000)
    host = HOSTS["eager"]
    saved = 35 * (host.launch_seconds - host.backward_launch_seconds)
    found = ours.makespan - theirs.makespan
    assert found == pytest.approx(saved - host.launch_seconds, abs=1e-9)
