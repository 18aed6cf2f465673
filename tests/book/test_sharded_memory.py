"""The peak of fully_shard: PyTorch's tracker, and a count by hand."""

import json

import pytest
import torch
import torch.distributed as dist
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
from torch.testing._internal.distributed.fake_pg import FakeStore

import dpkit
from dpbook.formulas.sharding import peak_parts, update_peak, usual_peak
from dpbook.sharding.seven_billion import LanguageModel, shard
from tests.repository import ROOT
from tests.weekly import few_of

RECORD = ROOT / "book/_data/seven_billion.json"
pytestmark = pytest.mark.slow
SIZES = {"width": 128, "num_blocks": 4, "vocabulary": 512}
RUNS = {
    "4 devices": {},
    "not sharded again": {"reshard_after_forward": False},
    "16 bits, more words": {"bf16": True, "shape": (2, 256)},
    "16 bits, 8 devices, not sharded again": {
        "bf16": True,
        "world_size": 8,
        "reshard_after_forward": False,
    },
    "checkpointed, more words": {"checkpointed": True, "shape": (2, 256)},
}

HERE = ["4 devices", "16 bits, more words"]


def build(kind, bf16=False, checkpointed=False, sizes=SIZES, **how):
    with torch.device("meta"):
        model = LanguageModel(**sizes, checkpointed=checkpointed)
    shard(model, kind, bf16, **how)
    return model.to_empty(device=kind)


def two_steps(model, words, begin, end):
    """Take two steps; return what ``end`` returns after each."""
    optimizer = torch.optim.Adam(model.parameters(), foreach=True)
    begin(optimizer)
    found = []
    for _ in range(2):
        optimizer.zero_grad()
        model(words, words).backward()
        optimizer.step()
        found.append(end())
    return found


def simulated(world_size=4, shape=(1, 64), **how):
    """Return the peaks of two steps, in bytes, which all ranks have."""

    def train():
        device = torch.device("sim", dist.get_rank())
        words = torch.zeros(shape, dtype=torch.long, device=device)

        def peak():
            torch.sim.synchronize(device)
            found = torch.sim.max_memory_allocated(device)
            torch.sim.reset_peak_memory_stats(device)
            return found

        return two_steps(build("sim", **how), words, lambda _: None, peak)

    with dpkit.sim.machine(hosts="per_device", backing="meta"):
        peaks = dpkit.sim.launch(train, world_size, algorithm="library")
    assert peaks == [peaks[0]] * world_size
    return peaks[0]


def tracked(world_size=4, shape=(1, 64), **how):
    """Return the peaks that PyTorch's own tracker counts, on one CPU."""
    dist.init_process_group(
        "fake", rank=0, world_size=world_size, store=FakeStore()
    )
    try:
        model = build("cpu", **how)
        words = torch.zeros(shape, dtype=torch.long)
        trackers = []

        def begin(optimizer):
            trackers.append(FSDPMemTracker(model, optimizer))
            trackers[0].track_inputs((words,))
            trackers[0].__enter__()

        def peak():
            (found,) = trackers[0].get_tracker_snapshot("peak").values()
            trackers[0].reset_mod_stats()
            return found["Total"]

        peaks = two_steps(model, words, begin, peak)
        trackers[0].__exit__(None, None, None)
        return peaks
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize("run", few_of(RUNS, HERE))
def test_the_peak_is_that_of_pytorchs_tracker(run):
    """They differ by three things alone, all right where they stand.

    On the CPU, Adam's counts of steps, 4 bytes for each parameter, are on the
    one device that there is. The statistics of layer norm, two for each word,
    have 16 bits on the CPU, where they have 32 on a GPU. And a kernel of a GPU
    keeps what its dropout begins with, two numbers of 8 bytes.
    """
    how = RUNS[run]
    ours, theirs = simulated(**how), tracked(**how)
    counts = 4 * (10 * SIZES["num_blocks"] + 4)
    batch, length = how.get("shape", (1, 64))
    norms = 2 * SIZES["num_blocks"] + 1
    statistics = 4 * norms * batch * length * how.get("bf16", False)
    seeds = 16 * SIZES["num_blocks"]
    for mine, other in zip(ours, theirs, strict=True):
        assert other - counts <= mine <= other + statistics + seeds


@pytest.mark.parametrize(
    ("k", "num_blocks"), few_of([(2, 8), (4, 6), (8, 4)], [(2, 8)])
)
def test_the_count_by_hand_explains_the_peak(k, num_blocks):
    width, vocabulary = 256, 256
    sizes = dict(zip(SIZES, (width, num_blocks, vocabulary)))
    _, peak = simulated(k, (1, 8), sizes=sizes)
    block = 4 * (12 * width**2 + 4 * width)
    head = 4 * (vocabulary * width + 2 * width)
    shape = num_blocks, block, head + 4 * vocabulary * width
    parts = sum(peak_parts(*shape, head, k).values())
    counted = max(parts, update_peak(*shape, k))
    assert counted <= peak < 1.01 * counted
    assert (counted > parts) == (k == 2)
    assert usual_peak(*shape, k) < 0.86 * peak


def test_the_recorded_steps_keep_their_shards():
    """Of each parameter, 4 bytes and two averages; it fits, or says so."""
    record = json.loads(RECORD.read_text())
    found = {
        (run["world_size"], run["rows"], run["checkpointed"]): run
        for run in record["runs"]
    }
    lacking = {key for key, run in found.items() if "out_of_memory" in run}
    assert lacking == {(1, 1, False), (8, 16, False)}
    for (world_size, *_), run in found.items():
        if "kept" in run:
            each = run["parameters"] / world_size
            assert run["start"] == 4 * each
            assert run["kept"] == pytest.approx(12 * each, rel=1e-3)
            assert run["update"] == pytest.approx(20 * each, rel=1e-3)
            assert run["backward"] > run["kept"]
