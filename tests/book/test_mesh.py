"""One model on any layout of a mesh: what one device learns, and the bytes."""

from dataclasses import replace

import pytest
import torch
import torch.distributed as dist
from recorders.mesh import LAYOUTS, row
from recorders.provenance import load
from torch import nn

import dpkit
from dpbook.mesh import engines, training
from dpbook.mesh.forecasts import Forecast, forecast
from dpbook.mesh.groups import groups_of, groups_on_rank
from dpbook.mesh.layouts import Layout, make_mesh, own_rows
from dpbook.mesh.model import Llama, Sizes
from dpbook.mesh.programs import (
    SMALL,
    Learned,
    continue_learning,
    largest_difference,
    learn,
    learn_on_one_device,
    mean_losses,
    new_model,
    norms_of_gradients,
    resume,
    save_after_a_step,
    text,
    whole_norm,
)
from dpbook.mesh.results import ordered_alike
from dpbook.mesh.runs import (
    LARGE,
    NUM_ROWS,
    Measured,
    alive_at_peak,
    measure,
)
from dpbook.mesh.traffic import expected_bytes
from dpbook.mesh.training import Trainer
from dpkit.sim.clock.record import Block, Span
from dpkit.sim.timeline.timeline import Timeline
from tests.weekly import few_of, weekly

CLIP = 0.1  # less than the norm of each step, so that it always clips
ONE_WAY = [
    Layout(ddp=2),
    Layout(fsdp=2),
    Layout(tp=2),
    Layout(pp=2, micro_batches=4),
    Layout(cp=2),
]
TWO_WAYS = [
    Layout(replicate=2, fsdp=2),
    Layout(fsdp=2, tp=2, recompute=True),
    Layout(pp=2, fsdp=2, micro_batches=2),
    Layout(pp=2, tp=2, micro_batches=2),
    Layout(fsdp=2, cp=2),
    Layout(cp=2, tp=2),
    Layout(pp=2, cp=2, micro_batches=2),
]
# Each engine once, and the two whose rules get in each other's way.
HERE = [ONE_WAY[0], TWO_WAYS[0], TWO_WAYS[2], TWO_WAYS[5]]
LARGEST = 1e-12


def in_16_bits(layout):
    return replace(layout, bfloat16=True)


@pytest.fixture(scope="module")
def one_device():
    """Return three clipped steps without any engine."""
    return learn_on_one_device(clip=CLIP)


def on_ranks(layout):
    return dpkit.sim.launch(learn, layout.num_ranks, layout, SMALL, 3, CLIP)


def test_steps_change_all_parameters(one_device):
    """Else a layout that learns nothing would pass; and it clips."""
    before = dict(new_model(SMALL).named_parameters())
    for name, p in one_device.parameters.items():
        assert (p - before[name]).abs().max() > 1e-4, name
    free = learn_on_one_device()
    assert free.losses[0] == one_device.losses[0]
    assert largest_difference([free], one_device) > 1e-6


@pytest.mark.parametrize("layout", few_of(ONE_WAY + TWO_WAYS, HERE), ids=str)
def test_each_layout_learns_what_one_device_learns(layout, one_device):
    assert largest_difference(on_ranks(layout), one_device) < LARGEST


@pytest.mark.weekly
def test_three_ways_at_once(one_device):
    layout = Layout(pp=2, fsdp=2, tp=2, micro_batches=2)
    assert largest_difference(on_ranks(layout), one_device) < LARGEST


# -- faults that the comparison with one device must find


def stage_norm(trainer):
    """Clip by the norm of the own stage."""
    parameters = list(trainer.model.parameters())
    grads = [p.grad for p in parameters]
    norm = training.whole_tensor(nn.utils.get_total_norm(grads))
    nn.utils.clip_grads_with_norm_(parameters, trainer.clip, norm)


def rows_of_innermost(layout, mesh, num_rows):
    """Read rows as if fsdp were the innermost dimension."""
    each = num_rows // layout.fsdp
    place = dist.get_rank() % layout.fsdp
    return slice(place * each, (place + 1) * each)


def angles_from_zero(rotary, mesh, tokens, targets):
    """Cut sequences, but take each part for the beginning."""
    return engines.context_parallel(
        mesh,
        buffers=[tokens, targets],
        buffer_seq_dims=[1, 1],
        no_restore_buffers={tokens, targets},
    )


FAULTS = {
    "clipped by the norm of a stage": (
        (Trainer, "clip_gradients", stage_norm),
        Layout(pp=2, micro_batches=4),
    ),
    "rows by the wrong dimension": (
        (training, "own_rows", rows_of_innermost),
        Layout(fsdp=2, cp=2),
    ),
    "a part of a sequence taken for its beginning": (
        (training, "cut_sequences", angles_from_zero),
        Layout(cp=2),
    ),
    "replicas that are not told of each other": (
        (training, "DistributedDataParallel", lambda model: model),
        Layout(ddp=2),
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_seen(fault, one_device, monkeypatch):
    where, layout = FAULTS[fault]
    monkeypatch.setattr(*where)
    assert largest_difference(on_ranks(layout), one_device) > 1e-6


def test_a_parameter_that_no_rank_has(one_device):
    ranks = [Learned(one_device.losses, {})]
    with pytest.raises(ValueError, match=r"has these parameters \(\['block"):
        largest_difference(ranks, one_device)


# -- real processes


@pytest.mark.parametrize(
    "layout",
    [weekly(Layout(fsdp=2, tp=2)), Layout(pp=2, cp=2, micro_batches=2)],
    ids=str,
)
def test_processes_learn_what_simulated_ranks_learn(layout):
    settings = layout, SMALL, 2, CLIP
    simulated = dpkit.sim.launch(learn, layout.num_ranks, *settings)
    real = dpkit.launch(learn, layout.num_ranks, *settings, backend="gloo")
    for a, b in zip(simulated, real, strict=True):
        assert a.losses == pytest.approx(b.losses, rel=1e-15)
        assert a.parameters.keys() == b.parameters.keys()
        for name, p in a.parameters.items():
            assert (p - b.parameters[name]).abs().max() < 1e-15, name


# -- bytes

TINY = Sizes(blocks=2, length=64)
SENDING = [
    Layout(ddp=2),
    weekly(Layout(fsdp=4)),
    Layout(replicate=2, fsdp=2),
    weekly(Layout(tp=4)),
    Layout(fsdp=2, tp=2),
    Layout(pp=2, fsdp=2, micro_batches=2),
    Layout(fsdp=2, cp=2),
]


@pytest.mark.parametrize("layout", SENDING, ids=str)
def test_bytes_are_those_of_the_formula(layout):
    sent = measure(in_16_bits(layout), TINY, ranks_per_node=None).sent
    expected = expected_bytes(layout, TINY, num_rows=16)
    for key, num_bytes in expected.items():
        # Stages also tell each other the shapes, in some hundreds of bytes.
        slack = 2000 if key[0] == "pp" else 0
        assert 0 <= sent[key] - num_bytes <= slack, key
    others = {key: n for key, n in sent.items() if key not in expected}
    most = max(sent.values())
    for (name, _), num_bytes in others.items():
        assert name == "cp" or num_bytes < most / 10


# -- checkpoints


def forget(layout, folder):
    """Resume without Adam's averages."""
    load = Trainer.load

    def load_parameters(trainer, folder):
        continue_learning(trainer, SMALL, steps=1)
        load(trainer, folder)
        for state in trainer.optimizer.state.values():
            state["exp_avg"].zero_()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "load", load_parameters)
        return dpkit.sim.launch(resume, layout.num_ranks, layout, folder)


@pytest.mark.parametrize(
    ("saves", "loads"),
    [
        (Layout(fsdp=2), Layout(pp=2, micro_batches=4)),
        weekly((
            Layout(fsdp=2, tp=2), Layout(pp=2, fsdp=2, micro_batches=2)
        )),
    ],
    ids=str,
)  # fmt: skip
def test_what_one_layout_saves_another_one_loads(saves, loads, tmp_path):
    """Adam's state too: without it the last loss is another one."""
    ranks = dpkit.sim.launch(
        save_after_a_step, saves.num_ranks, saves, tmp_path
    )
    resumed = dpkit.sim.launch(resume, loads.num_ranks, loads, tmp_path)
    expected = mean_losses(ranks)
    assert mean_losses(resumed) == pytest.approx(expected, rel=1e-15)
    first, second = mean_losses(forget(loads, tmp_path))
    assert first == pytest.approx(expected[0], rel=1e-15)
    assert abs(second - expected[1]) > 1e-6


# -- norms and groups


def test_the_norm_of_a_mesh_is_that_of_one_device():
    layout = Layout(pp=2, fsdp=2, micro_batches=4)
    ranks = dpkit.sim.launch(norms_of_gradients, 4, layout)
    expected = whole_norm()
    assert [n.whole for n in ranks] == pytest.approx([expected] * 4)
    squares = sum(norms.own**2 for norms in ranks)
    assert squares == pytest.approx(expected**2)


def test_groups_of_a_mesh():
    layout = Layout(pp=2, fsdp=2, tp=2)
    ranks = dpkit.sim.launch(groups_on_rank, 8, layout)
    assert ranks[5] == {"pp": [1, 5], "fsdp": [5, 7], "tp": [4, 5]}
    assert groups_of(ranks, "fsdp") == [[0, 2], [1, 3], [4, 6], [5, 7]]


# -- what is read out of a run, and of the record


def test_what_is_alive_at_the_peak():
    blocks = [
        Block("sim:0", 8, "other", allocated=0, freed=2),
        Block("sim:0", 4, "other", allocated=1, freed=4),
        Block("sim:0", 9, "other", allocated=3),
        Block("sim:1", 99, "other", allocated=3),
    ]
    assert +alive_at_peak(Timeline(blocks=blocks), "sim:0") == {4: 1, 9: 1}


def test_pairs_in_the_order_of_the_engines():
    engines = {"a": 3, "b": 1, "c": 2, "d": 9}
    rows = [
        {"name": name, "seconds": x, "peak_bytes": 10 - x}
        for name, x in engines.items()
    ]
    planned = {
        name: Forecast(x, x) for name, x in {"a": 1, "b": 1.5, "c": 2}.items()
    }
    for what, alike in (("seconds", 1), ("bytes", 2)):
        assert ordered_alike(rows, planned, what, apart=0.1) == (alike, 3)
    assert ordered_alike(rows, planned, "seconds", apart=1.5) == (0, 1)


# -- layouts


def test_the_stages_of_a_cut():
    layout = Layout(pp=3, cut=(1, 3, 2))
    found = [layout.stage(i, 6) for i in range(3)]
    assert found == [range(1), range(1, 4), range(4, 6)]
    even = [Layout(pp=3).stage(i, 5) for i in range(3)]
    assert even == [range(1), range(1, 3), range(3, 5)]


def test_a_stage_is_the_model_with_fewer_blocks():
    whole = set(Llama(SMALL).state_dict())
    parts = [set(Llama(SMALL, range(i, i + 1)).state_dict()) for i in (0, 1)]
    assert parts[0] | parts[1] == whole
    assert not parts[0] & parts[1]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"ddp": 2, "tp": 2}, r"but replicate does \(ddp: 2, ranks: 4\)"),
        ({"replicate": 2, "cp": 3}, r"here \(replicate: 2, cp: 3\)"),
        ({"micro_batches": 2}, r"need a pipeline \(micro_batches: 2, pp: 1\)"),
        ({"pp": 2, "cut": (4,)}, r"each stage \(cut: \(4,\), pp: 2\)"),
    ],
)
def test_layouts_that_are_refused(settings, words):
    with pytest.raises(ValueError, match=words):
        Layout(**settings)


def rows_of(layout, num_rows):
    rows = own_rows(layout, make_mesh(layout), num_rows)
    return list(range(num_rows))[rows]


def test_rows_of_each_rank():
    layout = Layout(pp=2, fsdp=2, tp=2)
    first, second = [0, 1], [2, 3]
    assert dpkit.sim.launch(rows_of, 8, layout, 4) == [
        first, first, second, second, first, first, second, second
    ]  # fmt: skip
    layout = Layout(replicate=2, fsdp=2)
    assert dpkit.sim.launch(rows_of, 4, layout, 4) == [[0], [1], [2], [3]]
    with pytest.raises(RuntimeError, match=r"evenly \(rows: 6, parts: 4\)"):
        dpkit.sim.launch(rows_of, 4, layout, 6)


def test_tokens_that_follow():
    tokens, targets = text(SMALL)
    assert torch.equal(tokens[:, 1:], targets[:, :-1])


# -- the record


def test_the_record_has_every_layout():
    found = [one["name"] for one in load("mesh")["layouts"]]
    assert found == [str(layout) for layout in LAYOUTS]
    for one in load("mesh")["layouts"]:
        assert one["difference"] < LARGEST


@pytest.mark.parametrize(
    "layout", [x for x in LAYOUTS if not x.recompute], ids=str
)
def test_recorded_bytes_are_those_of_the_formula(layout):
    recorded = {one["name"]: one for one in load("mesh")["layouts"]}
    sent = recorded[str(layout)]["sent"]
    expected = expected_bytes(layout, LARGE, NUM_ROWS)
    assert {key: sent[" ".join(key)] for key in expected} == expected
    rest = {*sent} - {" ".join(key) for key in expected}
    large = {key for key in rest if sent[key] > 1e-3 * sum(sent.values())}
    assert all(key.startswith("cp ") for key in large)


@pytest.mark.weekly
@pytest.mark.parametrize("name", ["fsdp8", "pp2 × fsdp4"])
def test_two_rows_of_the_record_again(name):
    recorded = {one["name"]: one for one in load("mesh")["layouts"]}[name]
    (layout,) = (layout for layout in LAYOUTS if str(layout) == name)
    again = row(layout)
    for key in ("name", "peak_bytes", "sent"):
        assert again[key] == recorded[key]
    assert again["seconds"] == pytest.approx(recorded["seconds"], rel=1e-9)


def test_what_the_planner_cannot_write():
    assert forecast(Layout(replicate=2, fsdp=4)) is None
    assert forecast(Layout(cp=2, fsdp=4)) is None
    assert forecast(LAYOUTS[-1]) is None


def test_what_the_planner_says():
    layouts = [Layout(ddp=8), Layout(fsdp=8), Layout(fsdp=8, recompute=True)]
    most, less, least = map(forecast, layouts)
    assert most.num_bytes > less.num_bytes > least.num_bytes
    assert least.seconds > less.seconds


def test_what_a_device_computes():
    """Neither what another device computes, nor what this one sends."""
    given = [
        ("sim:0", "compute", 0.0, 2.0),
        ("sim:0", "compute", 5.0, 6.0),
        ("sim:0", "tp", 2.0, 5.0),
        ("sim:1", "compute", 0.0, 7.0),
    ]
    spans = [
        Span(device, stream, "mm", "compute", start=start, end=end)
        for device, stream, start, end in given
    ]
    found = Measured(7.0, 0, {}, Timeline(spans, label=""))
    assert [found.computing(rank) for rank in (0, 1)] == [3.0, 7.0]
