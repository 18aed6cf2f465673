"""A pipeline is the network on one device, whatever its schedule."""

import copy
import gc
from functools import cache
from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import dpkit
from dpkit.network_partition import layer_seconds
from dpkit.network_partition.untie import untie
from dpkit.schedules.actions import parse
from dpkit.schedules.bubble import in_flight
from dpkit.schedules.named import (
    NAMED,
    SCHEDULE_NAMES,
    by_name,
    one_f_one_b,
)
from dpkit.schedules.replay import replay

TOKENS, WIDTH = 7, 5


def language_model(drop=0.0):
    """The first and the last layer share their weights."""
    torch.manual_seed(1)
    layers = [nn.Embedding(TOKENS, WIDTH)]
    for _ in range(3):
        layers += [nn.Linear(WIDTH, WIDTH), nn.Tanh()]
        layers += [nn.Dropout(drop)] if drop else []
    model = nn.Sequential(*layers, nn.Linear(WIDTH, TOKENS, bias=False))
    model[-1].weight = model[0].weight
    return model.double()


def batches(size, num_steps=2):
    generator = torch.Generator().manual_seed(size)
    for _ in range(num_steps):
        yield torch.randint(TOKENS, (2, size), generator=generator)


def train(model, batch_size, step, clip):
    """Two steps with momentum and clipping; losses and norms."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    found = []
    for X, y in batches(batch_size):
        optimizer.zero_grad()
        loss = step(X, y)
        found += [loss.item(), clip().item()]
        optimizer.step()
    return torch.tensor(found)


def train_on_one(batch_size):
    model = language_model()

    def step(X, y):
        loss = F.cross_entropy(model(X), y)
        loss.backward()
        return loss

    def clip():
        return torch.nn.utils.clip_grad_norm_(model.parameters(), 0.2)

    return model, train(model, batch_size, step, clip)


def train_pipeline(pipeline, batch_size):
    def step(X, y):
        return pipeline.forward_backward(X, y, F.cross_entropy)

    def clip():
        return dpkit.clip_grad_norm(
            pipeline.parameters(), 0.2, pipeline.copies
        )

    return train(pipeline, batch_size, step, clip)


def layers(pipeline):
    return [layer for stage in pipeline.stages for layer in stage]


def largest_difference(pipeline, model):
    """Compare every parameter and gradient of every layer."""
    differences = [0.0]
    for layer, reference in zip(layers(pipeline), model, strict=True):
        pairs = zip(layer.parameters(), reference.parameters(), strict=True)
        for p, r in pairs:
            assert p.grad is not None
            differences.append((p.detach().cpu() - r.detach()).abs().max())
            differences.append((p.grad.cpu() - r.grad).abs().max())
    return float(max(differences))


# That each schedule is right for many more p and m is shown in test_schedules;
# here, that what it says is done. Fewer micro-batches than stages, as many,
# more; "interleaved" is defined where the devices divide them.
SIZES = [(1, 3), (2, 1), (2, 4), (3, 2), (3, 6), (4, 7)]


@pytest.mark.parametrize(
    ("schedule", "p", "m"),
    [
        (schedule, p, m)
        for schedule in SCHEDULE_NAMES
        for p, m in SIZES
        if schedule != "interleaved" or m % p == 0
    ],
)
def test_a_pipeline_is_one_device(schedule, p, m):
    num_stages = 2 * p if schedule == "interleaved" else p
    batch_size = 2 * m + 1  # the micro-batches are not of one size
    devices = dpkit.devices(p, "sim")
    stages = dpkit.split_layers(language_model(), num_stages)
    pipeline = dpkit.Pipeline(stages, devices, schedule, m)
    found = train_pipeline(pipeline, batch_size)
    model, expected = train_on_one(batch_size)
    assert (found - expected).abs().max() < 1e-10
    assert largest_difference(pipeline, model) < 1e-10
    for s, stage in enumerate(pipeline.stages):
        assert {q.device for q in stage.parameters()} <= {devices[s % p]}


@pytest.mark.parametrize("schedule", SCHEDULE_NAMES)
@pytest.mark.parametrize("recompute", [False, True])
def test_recomputation(schedule, recompute):
    num_stages = 4 if schedule == "interleaved" else 2
    stages = dpkit.split_layers(language_model(), num_stages)
    pipeline = dpkit.Pipeline(
        stages, dpkit.devices(2, "sim"), schedule, 4, recompute
    )
    train_pipeline(pipeline, 9)
    model, _ = train_on_one(9)
    assert largest_difference(pipeline, model) < 1e-10


@cache
def dropout_gradients(num_stages, p, schedule, recompute):
    stages = dpkit.split_layers(language_model(0.5), num_stages)
    pipeline = dpkit.Pipeline(
        stages, dpkit.devices(p, "sim"), schedule, 6, recompute
    )
    torch.manual_seed(3)
    train_pipeline(pipeline, 13)
    return [p.grad.cpu() for la in layers(pipeline) for p in la.parameters()]


@pytest.mark.parametrize("schedule", SCHEDULE_NAMES)
@pytest.mark.parametrize(("p", "recompute"), [(2, True), (3, False)])
def test_dropout_does_not_depend_on_the_split(schedule, p, recompute):
    expected = dropout_gradients(1, 1, "naive", False)
    v = 2 if schedule == "interleaved" else 1
    found = dropout_gradients(v * p, p, schedule, recompute)
    for one, other in zip(found, expected, strict=True):
        assert (one - other).abs().max() < 1e-10


def test_dropout_differs_between_steps_layers_and_micro_batches():
    class Recorded(nn.Dropout):
        def forward(self, x):
            y = super().forward(x)
            masks.append((y != 0).cpu())
            return y

    masks = []
    model = nn.Sequential(Recorded(0.5), nn.Linear(40, 40), Recorded(0.5))
    pipeline = dpkit.Pipeline(
        dpkit.split_layers(model, 2, sizes=[1, 2]), dpkit.devices(2, "sim"),
        "gpipe", 2,
    )  # fmt: skip
    X, y = torch.ones(6, 40), torch.zeros(6, 40)
    for _ in range(2):
        pipeline.forward_backward(X, y, F.mse_loss)
    assert len(masks) == 8
    assert len({tuple(m.flatten().tolist()) for m in masks}) == 8


def test_random_numbers_of_others_go_on():
    pipeline = dpkit.Pipeline(
        dpkit.split_layers(language_model(0.5), 2), dpkit.devices(2, "sim")
    )
    X, y = next(batches(4))
    torch.manual_seed(0)
    torch.randint(2**62, ())  # the seed of the step is drawn as any number
    expected = torch.rand(3)
    torch.manual_seed(0)
    pipeline.forward_backward(X, y, F.cross_entropy)
    assert torch.equal(torch.rand(3), expected)


def norm_model():
    torch.manual_seed(2)
    return nn.Sequential(
        nn.Linear(3, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 2)
    ).double()


def test_batch_norm_is_that_of_micro_batches():
    """Equal to accumulation over micro-batches; not to the whole batch."""
    X = torch.randn(8, 3, dtype=torch.double)
    y = torch.randn(8, 2, dtype=torch.double)
    pipeline = dpkit.Pipeline(
        dpkit.split_layers(norm_model(), 2), dpkit.devices(2, "sim"), "1f1b", 4
    )
    pipeline.forward_backward(X, y, F.mse_loss)
    parts, whole = norm_model(), norm_model()
    for X_part, y_part in zip(X.chunk(4), y.chunk(4)):
        (F.mse_loss(parts(X_part), y_part) / 4).backward()
    F.mse_loss(whole(X), y).backward()
    assert largest_difference(pipeline, parts) < 1e-10
    assert largest_difference(pipeline, whole) > 1e-3
    buffers = zip(pipeline.buffers(), parts.buffers(), strict=True)
    for found, expected in buffers:
        assert (found.cpu() - expected).abs().max() < 1e-10


@pytest.mark.parametrize(("p", "m"), [(1, 3), (4, 3), (4, 8)])
@pytest.mark.parametrize("schedule", list(NAMED))
def test_micro_batches_in_flight_are_those_of_the_formula(schedule, p, m):
    stages = dpkit.split_layers(language_model(), p)
    pipeline = dpkit.Pipeline(stages, dpkit.devices(p, "sim"), schedule, m)
    pipeline.forward_backward(*next(batches(m)), F.cross_entropy)
    assert pipeline.most_in_flight == [
        in_flight(schedule, p, m, rank=rank) for rank in range(p)
    ]


def deep(width=64, depth=8):
    layers = [la for _ in range(depth) for la in (nn.Linear(width, width),
                                                  nn.Tanh())]  # fmt: skip
    return nn.Sequential(*layers)


def peaks(schedule, p, m, recompute=False, rows=32):
    """The peak bytes of activations on each device."""
    devices = dpkit.devices(p, "sim")
    pipeline = dpkit.Pipeline(
        dpkit.split_layers(deep(), p, sizes=[16 // p] * p), devices, schedule,
        m, recompute,
    )  # fmt: skip
    X = torch.randn(m * rows, 64)
    pipeline.forward_backward(X, X, F.mse_loss)  # makes the gradients
    before = [torch.sim.memory_allocated(d) for d in devices]
    for device in devices:
        torch.sim.reset_peak_memory_stats(device)
    pipeline.forward_backward(X, X, F.mse_loss)
    return [
        torch.sim.max_memory_allocated(d) - b for d, b in zip(devices, before)
    ]


def test_memory_in_flight():
    """Another micro-batch in flight is another one's activations."""
    p = 4
    one = 32 * 64 * 4  # bytes of one activation
    kept = (1 + 16 // p // 2) * one  # what came in, and out of each Tanh
    gpipe, longer_gpipe = peaks("gpipe", p, 2 * p), peaks("gpipe", p, 3 * p)
    f_b, longer_f_b = peaks("1f1b", p, 2 * p), peaks("1f1b", p, 3 * p)
    for r in range(1, p - 1):  # without X on the first, y on the last
        assert longer_gpipe[r] - gpipe[r] == p * kept
        assert longer_f_b[r] == f_b[r]
    for r in range(1, p - 2):
        assert f_b[r] - f_b[r + 1] == kept


def test_what_recomputation_saves():
    """What is kept is what came in, on its own."""
    p, one = 4, 32 * 64 * 4
    short, long = (peaks("gpipe", p, m, recompute=True) for m in (8, 12))
    for r in range(1, p - 1):
        assert long[r] - short[r] == 4 * one


def test_a_schedule_by_hand():
    schedule = parse("""
        0F0 0F1 0B1 0B0
        1F1 1B1 1F0 1B0
    """)
    stages = dpkit.split_layers(language_model(), 2)
    pipeline = dpkit.Pipeline(stages, dpkit.devices(2, "sim"), schedule)
    train_pipeline(pipeline, 5)
    model, _ = train_on_one(5)
    assert largest_difference(pipeline, model) < 1e-10


def test_several_stages_on_a_device_by_hand():
    """Neighbours on one device send each other nothing."""
    schedule = parse("""
        0F0 1F0 1B0 0B0
        2F0 2B0
    """)
    stages = dpkit.split_layers(language_model(), 3)
    pipeline = dpkit.Pipeline(stages, dpkit.devices(2, "sim"), schedule)
    with dpkit.sim.trace() as timeline:
        train_pipeline(pipeline, 5)
    model, _ = train_on_one(5)
    assert largest_difference(pipeline, model) < 1e-10
    sent = [
        span
        for span in timeline.spans
        if span.device == "sim:0"
        and span.name.startswith("copy")
        and span.stream != "compute"
    ]
    # In each of two steps one activation goes there and one gradient back;
    # then a ring of two adds up the gradients of the shared weight: each
    # device sends one half to be added, and one that is the sum.
    there, back = "copy to sim:1", "copy from sim:1"
    found = [span.name for span in sent]
    step = found[: len(found) // 2]
    assert found == 2 * step
    assert step[:2] == [there, back]
    assert sorted(step[2:]) == [back, back, there, there]


def test_gradients_are_added_to_those_that_are_there():
    """Copies too: what was summed is not summed again."""
    stages = dpkit.split_layers(language_model(), 2)
    pipeline = dpkit.Pipeline(stages, dpkit.devices(2, "sim"))
    model = language_model()
    for X, y in batches(5):
        pipeline.forward_backward(X, y, F.cross_entropy)
        F.cross_entropy(model(X), y).backward()
    assert largest_difference(pipeline, model) < 1e-10


def test_copies_of_a_shared_parameter():
    model = language_model()
    stages, copies = untie(dpkit.split_layers(model, 3))
    ((first, last),) = copies
    assert first is model[0].weight
    assert last is stages[-1][-1].weight
    assert last is not first
    assert torch.equal(first, last)


def test_frozen_layers():
    """Nothing to train before the second stage: no gradient goes there."""
    model = language_model()
    model[-1].weight = nn.Parameter(model[0].weight.detach().clone())
    reference = copy.deepcopy(model)
    for net in (model, reference):
        net[0].requires_grad_(False)
        net[1].requires_grad_(False)
    pipeline = dpkit.Pipeline(
        dpkit.split_layers(model, 2, sizes=[2, 6]), dpkit.devices(2, "sim")
    )
    X, y = next(batches(5))
    pipeline.forward_backward(X, y, F.cross_entropy)
    F.cross_entropy(reference(X), y).backward()
    pairs = zip(pipeline.parameters(), reference.parameters(), strict=True)
    for p, r in pairs:
        assert (p.grad is None) == (r.grad is None)
        if r.grad is not None:
            assert (p.grad.cpu() - r.grad).abs().max() < 1e-10


@pytest.mark.parametrize("schedule", SCHEDULE_NAMES)
def test_on_each_kind_of_device(get_devices, schedule):
    num_stages = 4 if schedule == "interleaved" else 2
    stages = dpkit.split_layers(language_model(), num_stages)
    pipeline = dpkit.Pipeline(stages, get_devices(2), schedule, 4)
    train_pipeline(pipeline, 9)
    model, _ = train_on_one(9)
    assert largest_difference(pipeline, model) < 1e-10


def test_forward_is_the_network():
    X, _ = next(batches(5))
    devices = dpkit.devices(3, "sim")
    pipeline = dpkit.Pipeline(dpkit.split_layers(language_model(), 3), devices)
    outputs = pipeline(X)
    assert outputs.device == devices[-1]
    assert (outputs.cpu() - language_model()(X)).abs().max() < 1e-12


def test_on_one_cpu():
    """Devices without streams, and the same one for all stages."""
    pipeline = dpkit.Pipeline(
        dpkit.split_layers(language_model(), 3), dpkit.devices(3, "cpu"),
        "zb-h1", 4,
    )  # fmt: skip
    train_pipeline(pipeline, 9)
    model, _ = train_on_one(9)
    assert largest_difference(pipeline, model) < 1e-10


def test_after_a_step_that_ran_out_of_memory():
    """What was kept is let go; the next step is as if it had not been."""
    with dpkit.sim.machine(num_devices=2, memory_bytes=400_000):
        devices = dpkit.devices(2, "sim")
        model = deep(depth=4).double()
        reference = copy.deepcopy(model)
        pipeline = dpkit.Pipeline(
            dpkit.split_layers(model, 2), devices, "gpipe", 4
        )
        before = [torch.sim.memory_allocated(d) for d in devices]
        X = torch.randn(400, 64, dtype=torch.double)
        with pytest.raises(torch.OutOfMemoryError):
            pipeline.forward_backward(X, X, F.mse_loss)
        pipeline.zero_grad()
        assert [torch.sim.memory_allocated(d) for d in devices] == before
        pipeline.forward_backward(X[:4], X[:4], F.mse_loss)
        F.mse_loss(reference(X[:4]), X[:4]).backward()
        assert largest_difference(pipeline, reference) < 1e-10
        del pipeline, model


@pytest.mark.parametrize("schedule", SCHEDULE_NAMES)
def test_simulated_time_is_the_replayed(schedule):
    """Where operations are long, launches and copies hide behind them."""
    p = 4
    m, width, rows, v = 8, 4096, 512, 2 if schedule == "interleaved" else 1
    with dpkit.sim.machine(num_devices=4, backing="meta"):
        devices = dpkit.devices(p, "sim")
        with devices[0]:  # made there, without numbers
            model = deep(width)
        X = torch.zeros(m * rows, width)
        x = X[:rows].clone().requires_grad_()
        costs = layer_seconds(model, x, devices[0])
        forward, backward, _ = (sum(of) / p / v for of in zip(*costs))
        stages = dpkit.split_layers(model, p * v)
        pipeline = dpkit.Pipeline(stages, devices, schedule, m)
        X, y = X.to(devices[0]), X.to(devices[-1])
        with dpkit.Timer(devices) as timer:
            pipeline.forward_backward(X, y, F.mse_loss)
        del stages, pipeline, X, y, model
    halves = {"I": backward / 2, "W": backward / 2}
    kinds = {"F": forward, "B": backward, **halves}
    replayed = replay(
        by_name(schedule, p, num_stages=p * v, num_micro_batches=m), kinds
    ).makespan
    # The first layer makes no gradient of its input: less by 1 of 24.
    assert 0.94 < timer.seconds / replayed < 1.01


@pytest.mark.parametrize(
    ("stages", "devices", "schedule", "m", "words"),
    [
        (3, 2, "1f1b", 4, r"one stage on each device \(stages: 3, devices: 2"),
        (4, 2, "interleaved", 3, r"\(micro-batches: 3, devices: 2\)"),
        (3, 2, "interleaved", 2, r"\(stages: 3, devices: 2\)"),
        (2, 2, "GPipes", 2, r"unknown schedule \(schedule: 'gpipes'"),
        (2, 2, "gpipe", 0, r"micro-batches: 0"),
        (2, 2, one_f_one_b(3, 2), None, r"lists of actions: 3, devices: 2"),
        (3, 2, one_f_one_b(2, 2), None, r"2F0 is missing"),
        (2, 2, one_f_one_b(2, 2), 3, r"0F2 is missing"),
    ],
)
def test_pipelines_that_do_not_fit(stages, devices, schedule, m, words):
    cut = dpkit.split_layers(language_model(), stages)
    with pytest.raises(ValueError, match=words):
        dpkit.Pipeline(cut, dpkit.devices(devices, "sim"), schedule, m)


@pytest.mark.parametrize("schedule", ["naive", "1f1b", "interleaved"])
def test_a_pipeline_needs_stages(schedule):
    words = r"\(stages: 0, devices: 2\)|\(chunks_per_device: 0\)"
    with pytest.raises(ValueError, match=words):
        dpkit.Pipeline([], dpkit.devices(2, "sim"), schedule)


def test_batches_that_do_not_fit():
    pipeline = dpkit.Pipeline(
        dpkit.split_layers(language_model(), 2), dpkit.devices(2, "sim"),
        "gpipe", 4,
    )  # fmt: skip
    X, y = next(batches(3))
    with pytest.raises(ValueError, match="examples: 3, micro-batches: 4"):
        pipeline.forward_backward(X, y, F.cross_entropy)
    with pytest.raises(ValueError, match="examples: 3, labels: 2"):
        pipeline.forward_backward(X, y[:2], F.cross_entropy)
    X, y = next(batches(8))
    each = nn.CrossEntropyLoss(reduction="none")
    with pytest.raises(ValueError, match=r"not one number \(shape: \(2,\)\)"):
        pipeline.forward_backward(X, y, each)


def test_stages_by_hand_and_by_cost():
    model = deep(depth=3)
    sizes = [len(s) for s in dpkit.split_layers(model, 3, sizes=[1, 4, 1])]
    assert sizes == [1, 4, 1]
    costs = [9, 1, 1, 1, 1, 9]
    sizes = [len(s) for s in dpkit.split_layers(model, 3, costs=costs)]
    assert sizes == [1, 4, 1]
    assert dpkit.split_layers(model, 2)[0][0] is model[0]


@pytest.mark.parametrize(
    ("num_stages", "options", "words"),
    [
        (7, {}, r"\(layers: 6, stages: 7\)"),
        (0, {}, r"\(layers: 6, stages: 0\)"),
        (2, {"costs": [1, 2]}, r"\(layers: 6, costs: 2\)"),
        (2, {"sizes": [3, 2]}, r"layers: 6, stages: 2, sizes: \[3, 2\]"),
        (2, {"sizes": [6, 0]}, r"sizes: \[6, 0\]"),
        (3, {"sizes": [7, -2, 1]}, r"sizes: \[7, -2, 1\]"),
        (2, {"sizes": [3, 3], "costs": [1] * 6}, "not both"),
        (3, {"sizes": [3, 3]}, r"stages: 3, sizes: \[3, 3\]"),
        (0, {"sizes": []}, r"stages: 0, sizes: \[\]"),
    ],
)
def test_cuts_that_do_not_fit(num_stages, options, words):
    with pytest.raises(ValueError, match=words):
        dpkit.split_layers(deep(depth=3), num_stages, **options)


def test_only_a_sequence_can_be_cut():
    with pytest.raises(TypeError, match="type: Linear"):
        dpkit.split_layers(nn.Linear(2, 2), 1)


def test_layers_take_together_what_the_network_takes():
    with dpkit.sim.machine(accelerator="p40", link="pcie3", backing="meta"):
        (device,) = dpkit.devices(1, kind="sim")
        sizes = [2000, 3000, 4000, 1000]
        layers = nn.Sequential(
            *(nn.Linear(a, b) for a, b in pairwise(sizes))
        ).to(device)
        X = torch.zeros(5000, sizes[0], device=device)
        costs = layer_seconds(layers, X, device)
        for _ in range(2):  # the second adds to gradients that are there
            with dpkit.Timer([device]) as both:
                made = layers(X)
                made.backward(torch.empty_like(made))
        del layers, X, made
    assert [c.num_bytes for c in costs] == [5000 * n * 4 for n in sizes[1:]]
    total = sum(c.seconds for c in costs)
    assert total == pytest.approx(both.seconds, rel=0.01)
    # The first gives no gradient to its input: half of the backward work.
    first, second = costs[:2]
    assert first.backward_seconds < 1.1 * first.forward_seconds
    assert second.backward_seconds > 1.9 * second.forward_seconds


def test_layers_that_pass_tuples_are_timed():
    class Pair(nn.Module):
        def forward(self, x):
            return x, x.argmax(dim=1)

    class First(nn.Module):
        def forward(self, pair):
            return pair[0] * 2

    model = nn.Sequential(nn.Linear(3, 5), Pair(), First())
    (device,) = dpkit.devices(1, "sim")
    costs = layer_seconds(model, torch.zeros(7, 3), device)
    assert [c.num_bytes for c in costs] == [7 * 5 * 4, 7 * (5 * 4 + 8), 140]
    assert next(model.parameters()).grad is None
    assert next(model.parameters()).device.type == "cpu"


class Twin(nn.Module):
    """Begin a skip: pass on what comes in, twice."""

    def forward(self, x):
        return x, x


class Past(nn.Module):
    """A layer for the first of two tensors; the other is only carried."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, pair):
        return self.layer(pair[0]), pair[1]


class Added(nn.Module):
    """End a skip: add the two tensors."""

    def forward(self, pair):
        return pair[0] + pair[1]


def with_a_skip(width, frozen=False):
    """Eight layers, of which four carry a tensor past themselves."""
    linears = [nn.Linear(width, width, bias=False) for _ in range(3)]
    linears[0].requires_grad_(not frozen)
    return nn.Sequential(
        nn.Flatten(), linears[0], Twin(),
        Past(nn.ReLU()), Past(linears[1]), Past(nn.ReLU()), Past(linears[2]),
        Added(),
    )  # fmt: skip


@pytest.mark.parametrize("frozen", [False, True])
def test_what_a_layer_only_carries_is_not_timed(frozen):
    """Neither forward nor backward; nor a gradient that nobody needs."""
    with dpkit.sim.machine(accelerator="p40", link="pcie3", backing="meta"):
        (device,) = dpkit.devices(1, kind="sim")
        model = with_a_skip(1000, frozen).to(device)
        X = torch.zeros(50_000, 1000, device=device)
        costs = layer_seconds(model, X, device)
        for _ in range(2):  # the second adds to gradients that are there
            with dpkit.Timer([device]) as forward:
                made = model(X)
            gradient = torch.ones_like(made)
            with dpkit.Timer([device]) as backward:
                made.backward(gradient)
        del model, X, made, gradient
    found = [sum(of) for of in zip(*costs)]
    assert found[0] == pytest.approx(forward.seconds, rel=0.01)
    assert found[1] == pytest.approx(backward.seconds, rel=0.01)


def gradients_of(layers, X, y, loss_fn, schedule, sizes, **options):
    """Of a pipeline and of one device, which are compared."""
    model = nn.Sequential(*layers).double()
    reference = copy.deepcopy(model)
    stages = dpkit.split_layers(model, len(sizes), sizes=sizes)
    pipeline = dpkit.Pipeline(
        stages, dpkit.devices(len(sizes), "sim"), schedule, 2, **options
    )
    loss = pipeline.forward_backward(X, y, loss_fn)
    expected = loss_fn(reference(X), y)
    expected.backward()
    assert abs(loss.item() - expected.item()) < 1e-10
    pairs = zip(pipeline.parameters(), reference.parameters(), strict=True)
    for p, r in pairs:
        assert (p.grad is None) == (r.grad is None)
        if r.grad is not None:
            assert (p.grad.cpu() - r.grad).abs().max() < 1e-10
    return pipeline


class Residual(nn.Sequential):
    def forward(self, x):
        return x + super().forward(x)


class Forgetful(nn.Module):
    """Its output does not depend on its input."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, x):
        return self.weight.expand(len(x), 4) * 2


class Index(nn.Module):
    def forward(self, x):
        return x.argmax(dim=1)


class Spectrum(nn.Module):
    def forward(self, x):
        return torch.fft.fft(x)


class Power(nn.Module):
    def forward(self, x):
        return x.abs()


UNUSUAL = {
    "residual": [nn.Linear(4, 4), Residual(nn.Linear(4, 4)), nn.Tanh()],
    "forgetful": [nn.Linear(4, 4), Forgetful(), nn.Linear(4, 4)],
    "integers": [nn.Linear(4, 4), Index(), nn.Embedding(4, 4)],
    "complex": [nn.Linear(4, 4), Spectrum(), Power()],
}


@pytest.mark.parametrize("schedule", ["gpipe", "zb-h1"])
@pytest.mark.parametrize("sizes", [[1, 2], [2, 1], [3]])
@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("layers", UNUSUAL.values(), ids=list(UNUSUAL))
def test_unusual_layers(layers, sizes, schedule, recompute):
    """What is one module to autograd, and what no gradient passes."""
    torch.manual_seed(0)
    X, y = torch.randn(2, 5, 4, dtype=torch.double)
    gradients_of(
        copy.deepcopy(layers),
        X, y, F.mse_loss, schedule, sizes, recompute=recompute,
    )  # fmt: skip


@pytest.mark.parametrize("schedule", ["gpipe", "zb-h1"])
def test_a_stage_that_is_a_module_of_its_own(schedule):
    """A subclass of Sequential, with its own forward, is one layer."""
    torch.manual_seed(0)
    stages = [
        Residual(nn.Linear(4, 4), nn.Tanh()).double(),
        nn.Linear(4, 4).double(),
    ]
    reference = copy.deepcopy(nn.Sequential(*stages))
    pipeline = dpkit.Pipeline(stages, dpkit.devices(2, "sim"), schedule, 2)
    X, y = torch.randn(2, 5, 4, dtype=torch.double)
    pipeline.forward_backward(X, y, F.mse_loss)
    F.mse_loss(reference(X), y).backward()
    pairs = zip(pipeline.parameters(), reference.parameters(), strict=True)
    for p, r in pairs:
        assert (p.grad.cpu() - r.grad).abs().max() < 1e-10


@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1"])
def test_one_parameter_in_three_stages(schedule):
    torch.manual_seed(0)
    layers = [nn.Linear(4, 4) for _ in range(3)]
    layers[1].weight = layers[2].weight = layers[0].weight
    X, y = torch.randn(2, 5, 4, dtype=torch.double)
    model = nn.Sequential(*layers).double()
    reference = copy.deepcopy(model)
    pipeline = dpkit.Pipeline(
        dpkit.split_layers(model, 3, sizes=[1, 1, 1]),
        dpkit.devices(3, "sim"), schedule, 2,
    )  # fmt: skip
    pipeline.forward_backward(X, y, F.mse_loss)
    F.mse_loss(reference(X), y).backward()
    (copies,) = pipeline.copies
    assert len(copies) == 3
    for p in copies:
        assert (p.grad.cpu() - reference[0].weight.grad).abs().max() < 1e-10


def test_layers_of_one_stage_share_a_weight_but_no_bias():
    layers = [nn.Linear(4, 4) for _ in range(3)]
    layers[1].weight = layers[0].weight
    model = nn.Sequential(*layers).double()
    reference = copy.deepcopy(model)
    X, y = torch.randn(2, 5, 4, dtype=torch.double)
    pipeline = dpkit.Pipeline(
        dpkit.split_layers(model, 2, sizes=[2, 1]), dpkit.devices(2, "sim")
    )
    pipeline.forward_backward(X, y, F.mse_loss)
    F.mse_loss(reference(X), y).backward()
    assert pipeline.copies == []
    assert largest_difference(pipeline, reference) < 1e-10


def test_a_frozen_shared_parameter_has_no_gradient():
    model = language_model()
    model[0].weight.requires_grad_(False)
    pipeline = dpkit.Pipeline(
        dpkit.split_layers(model, 2), dpkit.devices(2, "sim")
    )
    pipeline.forward_backward(*next(batches(5)), F.cross_entropy)
    assert [p.grad for p in pipeline.copies[0]] == [None, None]


def test_only_the_layer_that_shares_is_copied():
    model = language_model()
    model[0].weight.grad = torch.ones_like(model[0].weight)
    stages, ((_, twin),) = untie(dpkit.split_layers(model, 2))
    layers = [layer for stage in stages for layer in stage]
    assert [a is b for a, b in zip(layers, model)] == [True] * 7 + [False]
    assert torch.equal(twin.grad, model[0].weight.grad)
    names = [name for stage in stages for name, _ in stage.named_children()]
    assert names == [name for name, _ in model.named_children()]


@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1"])
def test_frozen_layers_within_a_stage(schedule):
    torch.manual_seed(0)
    layers = [nn.Linear(4, 4) for _ in range(4)]
    for i in (0, 2):
        layers[i].requires_grad_(False)
    X, y = torch.randn(2, 5, 4, dtype=torch.double)
    gradients_of(layers, X, y, F.mse_loss, schedule, [2, 2])


def test_the_same_model_cut_again():
    """In two, then in three: its layers have come to lie apart."""
    model = deep(depth=3).double()
    reference = copy.deepcopy(model)
    devices = dpkit.devices(3, "sim")
    dpkit.Pipeline(dpkit.split_layers(model, 2), devices[:2])
    pipeline = dpkit.Pipeline(dpkit.split_layers(model, 3), devices)
    X = torch.randn(6, 64, dtype=torch.double)
    pipeline.forward_backward(X, X, F.mse_loss)
    F.mse_loss(reference(X), X).backward()
    assert largest_difference(pipeline, reference) < 1e-10


def test_stages_that_share_a_buffer():
    norm = nn.BatchNorm1d(3, affine=False)
    stages = [nn.Sequential(nn.Linear(3, 3), norm), nn.Sequential(norm)]
    with pytest.raises(ValueError, match="two stages share a buffer"):
        dpkit.Pipeline(stages, dpkit.devices(2, "sim"))


def test_a_stage_that_lies_elsewhere():
    one, other, third = dpkit.devices(3, "sim")
    split = nn.ModuleList([nn.Linear(2, 2).to(one), nn.Linear(2, 2).to(other)])
    with pytest.raises(ValueError, match="device: sim:2, its layers': sim:0,"):
        dpkit.Pipeline([split], [third])


class FailsAtThird(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        if self.calls == 3:
            raise RuntimeError("planted")
        return x


def test_after_an_error_nothing_is_kept():
    """The error comes while micro-batches are in flight."""
    devices = dpkit.devices(2, "sim")
    model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64), FailsAtThird())
    pipeline = dpkit.Pipeline(
        dpkit.split_layers(model, 2, sizes=[1, 2]), devices, "gpipe", 4
    )
    before = [torch.sim.memory_allocated(d) for d in devices]
    X = torch.randn(400, 64)
    with pytest.raises(RuntimeError, match="planted"):
        pipeline.forward_backward(X, X, F.mse_loss)
    gc.collect()
    assert [torch.sim.memory_allocated(d) for d in devices] == before
    assert all(p.grad is None for p in pipeline.parameters())


def test_without_gradients_around_it():
    """A step makes gradients, wherever it is called."""
    stages = dpkit.split_layers(language_model(), 2)
    pipeline = dpkit.Pipeline(stages, dpkit.devices(2, "sim"), recompute=True)
    model = language_model()
    X, y = next(batches(5))
    with torch.no_grad():
        pipeline.forward_backward(X, y, F.cross_entropy)
    F.cross_entropy(model(X), y).backward()
    assert largest_difference(pipeline, model) < 1e-10


def test_memory_of_split_backwards():
    """What waits for its W is kept: the same on all devices in between."""
    p = 4
    found = peaks("zb-h1", p, 2 * p)[1 : p - 1]
    assert found == peaks("zb-h1", p, 3 * p)[1 : p - 1]
    one = 32 * 64 * 4
    assert max(found) - min(found) <= p * one
    assert min(found) > max(peaks("1f1b", p, 2 * p)[1 : p - 1])


def test_layers_that_work_in_place_are_timed():
    model = nn.Sequential(nn.Linear(3, 5), nn.ReLU(inplace=True))
    (device,) = dpkit.devices(1, "sim")
    assert len(layer_seconds(model, torch.zeros(7, 3), device)) == 2


def test_a_schedule_as_text():
    text = """
        0F0 0F1 .   .   0B0 0B1

        .   1F0 1F1 1B0 1B1 .
    """
    stages = dpkit.split_layers(language_model(), 2)
    pipeline = dpkit.Pipeline(stages, dpkit.devices(2, "sim"), text)
    assert pipeline.schedule == NAMED["gpipe"](2, 2)
    train_pipeline(pipeline, 5)
    model, _ = train_on_one(5)
    assert largest_difference(pipeline, model) < 1e-10


def test_devices_by_name():
    stages = dpkit.split_layers(language_model(), 2)
    pipeline = dpkit.Pipeline(stages, ["sim:0", "sim:1"], "GPipe", 2)
    assert pipeline.devices == dpkit.devices(2, "sim")
    with pytest.raises(AttributeError):
        pipeline.num_micro_batches = 4


def test_a_loss_that_is_a_sum():
    stages = dpkit.split_layers(language_model(), 2)
    pipeline = dpkit.Pipeline(stages, dpkit.devices(2, "sim"))
    loss_fn = nn.CrossEntropyLoss(reduction="sum")
    with pytest.raises(ValueError, match="reduction: 'sum'"):
        pipeline.forward_backward(*next(batches(5)), loss_fn)


def test_costs_as_they_are_measured():
    model = deep(depth=3)
    (device,) = dpkit.devices(1, "sim")
    costs = layer_seconds(model, torch.zeros(7, 64), device)
    cut = [len(s) for s in dpkit.split_layers(model, 2, costs=costs)]
    seconds = [cost.seconds for cost in costs]
    assert cut == [len(s) for s in dpkit.split_layers(model, 2, costs=seconds)]
