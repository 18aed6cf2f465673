"""Convolutional networks: what was published, and what the presets say."""

import json

import pytest
import torch
from recorders.trust import convolution_rates
from recorders.trust.convolution_rates import (
    Parts,
    fit_rates,
    left_out,
    one_gpu,
    scaling_comparisons,
    with_rates,
)
from recorders.trust.convolutional import NETWORKS, images_per_second

import dpkit
from dpbook.limits.comparisons import (
    Comparison,
    mean_factor,
    read,
    worst,
)
from dpkit.sim.hardware import ACCELERATORS
from tests.repository import ROOT

DATA = ROOT / "book/_data"


def record(name):
    return json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))


TENSORFLOW = record("tensorflow_2017")
RECORD = read(DATA / "comparisons.json")
K80 = "k80 GCE"
ONE = "alexnet"


def num_parameters(name):
    with torch.device("meta"):
        return sum(p.numel() for p in NETWORKS[name][0]().parameters())


def test_the_networks_have_the_sizes_that_are_known():
    """In millions; AlexNet with its own channels has 61.8."""
    assert {k: round(num_parameters(k) / 1e6, 1) for k in NETWORKS} == {
        "inception3": 23.8,
        "resnet50": 25.6,
        "resnet152": 60.2,
        "alexnet": 61.8,
        "vgg16": 138.4,
        "resnet50 v1.5": 25.6,
        "resnext101-32x4d": 44.2,
        "se-resnext101-32x4d": 45.3,
        "efficientnet-b0": 5.3,
        "efficientnet-b4": 19.3,
    }


def test_the_stride_in_the_first_convolution_saves_work():
    first, second = (
        images_per_second(name, 32, accelerator="v100")
        for name in ("resnet50", "resnet50 v1.5")
    )
    assert 1.02 * second < first < 1.15 * second


def recorded(**fields):
    """Return the rows of the record of comparisons that have these fields."""
    return [
        row
        for row in RECORD.rows
        if all(getattr(row, name) == value for name, value in fields.items())
    ]


def test_networks_left_out_of_the_fit():
    """A mean factor of 1.17 at most, on the K80, whose rates are fitted."""
    rows = recorded(hardware=K80, kind="unseen", work="convolutions")
    assert {row.subject for row in rows} == set(one_gpu(TENSORFLOW, K80))
    assert mean_factor(rows) <= 1.17
    assert worst(rows).subject == "vgg16"
    assert worst(rows).times_off <= 1.32


def test_a_network_left_out_does_not_change_its_own_rates(monkeypatch):
    """However fast it was, its rates are those that fit to the others."""
    parts = {
        "alexnet": Parts(0.1, 0.9, 0.2),
        "vgg16": Parts(0.2, 0.1, 0.8),
        "resnet50": Parts(0.0, 0.5, 0.5),
    }
    monkeypatch.setattr(convolution_rates, "parts", lambda *_: parts)
    monkeypatch.setattr(
        convolution_rates, "images_per_second", lambda *_, **__: 1.0
    )

    def rates(vgg16):
        alone = {"alexnet": {"1": 400}, "resnet50": {"1": 50}}
        table = {K80: alone | {"vgg16": {"1": vgg16}}}
        published = TENSORFLOW | {"images_per_second": table}
        return {row.subject: found for found, row in left_out(published, K80)}

    slow, fast = rates(30), rates(60)
    assert slow["vgg16"] == fast["vgg16"]
    assert slow["alexnet"] != fast["alexnet"]


def test_presets_that_saw_none_of_the_networks():
    """The P100's rates are DeepBench's; the K80's are fitted."""
    p100 = recorded(hardware="p100 DGX-1", work="convolutions")
    assert {row.kind for row in p100} == {"unseen"}
    assert {row.subject for row in p100} == set(
        one_gpu(TENSORFLOW, "p100 DGX-1")
    )
    assert mean_factor(p100) <= 1.17
    k80 = recorded(hardware=K80, kind="fitted", work="convolutions")
    assert mean_factor(k80) <= 1.1


def test_resnet50_of_nvidia():
    rows = recorded(subject="resnet50 v1.5", work="convolutions")
    assert len(rows) == 4
    assert mean_factor(rows) <= 1.17
    assert worst(rows).times_off <= 1.25


def test_scaling_on_the_k80():
    """Five points of efficiency on average, from 2 to 8 GPUs."""
    rows = recorded(hardware=K80, work="scaling")
    assert len(rows) == 15
    points = [abs(row.predicted - row.measured) for row in rows]
    assert sum(points) / len(points) <= 0.05


def test_the_record_of_scaling_is_what_is_simulated():
    """Of the network that takes the least; test_comparisons has them all.

    If they differ: python scripts/record.py comparisons.
    """
    rates = TENSORFLOW["images_per_second"][K80]
    one = TENSORFLOW | {"images_per_second": {K80: {ONE: rates[ONE]}}}
    found = recorded(hardware=K80, work="scaling", subject=ONE)
    rows = scaling_comparisons(one, K80)
    assert [row.configuration for row in found] == [
        row.configuration for row in rows
    ]
    for row, simulated in zip(found, rows, strict=True):
        assert row.predicted == pytest.approx(simulated.predicted, rel=5e-3)


def test_rates_are_found_again():
    """Steps whose parts are known, of rates 1.5 and 0.4."""
    steps = {
        "a": Parts(0.1, 0.9, 0.2),
        "b": Parts(0.2, 0.1, 0.8),
        "c": Parts(0.0, 0.5, 0.5),
    }
    measured = {
        name: (10, 10 / (p.rest + p.fast / 1.5 + p.other / 0.4))
        for name, p in steps.items()
    }
    assert fit_rates(steps, measured) == pytest.approx((1.5, 0.4))


def test_the_parts_of_a_step_add_up():
    gpu = with_rates(ACCELERATORS["p100"], 1.2, 0.5)
    parts = Parts.of("alexnet", 64, gpu)
    assert min(parts) > 0
    for fast, other in ((1.2, 0.5), (1.0, 0.45)):
        changed = with_rates(gpu, fast, other)
        seconds = 64 / images_per_second("alexnet", 64, accelerator=changed)
        expected = parts.rest + parts.fast / fast + parts.other / other
        assert seconds == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize(
    ("preset", "dtype", "measured"),
    [
        ("p100", "float32", "p100 float32"),
        ("p40", "float32", "titan xp float32"),
        ("v100", "float32", "v100 float32"),
        ("v100", "float16", "v100 mixed"),
    ],
)
def test_presets_hold_what_deepbench_measured(preset, dtype, measured):
    found = record("deepbench_convolutions")["together"]
    for kind in ("fast", "other"):
        rate = getattr(ACCELERATORS[preset], f"{kind}_convolutions")[dtype]
        share = found[measured][kind]["teraflops"] / found["peak"][measured]
        assert rate == pytest.approx(share, abs=0.006)


def test_a_kind_that_is_unknown_is_refused():
    with pytest.raises(ValueError, match="unknown kind") as refusal:
        Comparison("x", "y", "z", "s", 1, 1, "guessed", "copies")
    assert str(refusal.value) == (
        "unknown kind (kind: 'guessed', known: fitted, unseen)"
    )


@pytest.fixture(autouse=True)
def _leaves_the_machine_as_it_was():
    before = dpkit.sim.label()
    yield
    assert dpkit.sim.label() == before
