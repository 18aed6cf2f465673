"""The presets of hosts, against published rates and latencies."""

import json
from statistics import geometric_mean

import pytest

import dpkit
from dpbook.limits.latency import (
    SIDES,
    image_launches,
    image_seconds,
    published_seconds,
)
from dpkit import sim
from dpkit.calibration.predictions import CASES, step_seconds
from dpkit.sim.hardware import HOSTS
from tests.repository import ROOT

DATA = ROOT / "book" / "_data"
RECORD = DATA / "efficientnet_nvidia.json"
LATENCIES = published_seconds(RECORD)
BY_RATE = published_seconds(RECORD, by_rate=True)
# Of torchvision's networks, forward: kernels, and views.
LAUNCHES = {"efficientnet_b0": (238, 51), "efficientnet_b4": (475, 98)}


@pytest.fixture(autouse=True)
def _shapes_alone():
    """Devices without numbers: nothing is computed, and it takes no time."""
    with sim.machine(backing="meta", num_devices=1):
        yield


def ratio(published, network, host, mixed=False):
    """Return the simulated time of an image over the published one."""
    return image_seconds(network, mixed, host) / published[network, mixed]


def test_images_have_the_sides_of_the_record():
    assert json.loads(RECORD.read_text())["side"] == SIDES


def test_the_mean_latencies_are_those_of_the_page_in_seconds():
    found = [1e3 * seconds for seconds in LATENCIES.values()]
    assert found == pytest.approx([9.33, 16.22, 11.21, 20.45])


def test_a_few_slow_images_raise_the_mean_latency():
    """It is longer than what 95 of 100 images took; the other is shorter."""
    record = json.loads(RECORD.read_text())["latency_of_95_ms"]["A100"]
    for (network, mixed), seconds in LATENCIES.items():
        most = record["mixed" if mixed else "TF32"][network] / 1e3
        assert BY_RATE[network, mixed] < most < seconds


def test_latencies_on_v100s_are_about_half_longer():
    latencies = json.loads(RECORD.read_text())["mean_latency_ms"]
    longer = [
        100 * latencies["V100"][old][network] / each - 100
        for old, new in (("FP32", "TF32"), ("mixed", "mixed"))
        for network, each in latencies["A100"][new].items()
    ]
    assert [round(percent) for percent in longer] == [41, 44, 53, 48]


@pytest.mark.parametrize("network", SIDES)
def test_a_program_takes_what_the_published_rate_says(network):
    found = ratio(BY_RATE, network, "eager-program")
    assert found == pytest.approx(1, abs=0.05)
    found = ratio(BY_RATE, network, "eager-program", mixed=True)
    assert 1.14 < found < 1.16, "the casts, to which nothing was fitted"


@pytest.mark.parametrize(
    ("network", "mixed", "percent"),
    [
        ("efficientnet_b0", False, -20),
        ("efficientnet_b4", False, -9),
        ("efficientnet_b0", True, -3),
        ("efficientnet_b4", True, 6),
    ],
)
def test_how_far_a_program_is_from_the_published_latency(
    network, mixed, percent
):
    found = ratio(LATENCIES, network, "eager-program", mixed)
    assert round(100 * found) - 100 == percent


@pytest.mark.parametrize("network", SIDES)
def test_bare_operations_take_about_a_quarter_of_it(network):
    assert 1 / 4 < ratio(BY_RATE, network, "eager") < 1 / 3.6
    assert 1 / 4.75 < ratio(LATENCIES, network, "eager") < 1 / 4.05
    assert 0.6 < ratio(BY_RATE, network, "eager-modules") < 0.7
    assert 0.5 < ratio(LATENCIES, network, "eager-modules") < 0.6


@pytest.mark.parametrize("network", SIDES)
def test_the_launches_are_those_that_the_source_counts(network):
    kernels, views = LAUNCHES[network]
    assert image_launches(network) == (kernels, views)
    source = HOSTS["eager-program"].sources["launch_seconds"]
    assert str(kernels) in source
    assert str(views) in source


def launch_by(published):
    """Return what a launch takes if the host does nothing else.

    A view is counted as 1.5/8 of a launch, as of the host ``eager``.
    """
    return [
        published[network, False] / (kernels + 1.5 / 8 * views)
        for network, (kernels, views) in LAUNCHES.items()
    ]


def test_the_launch_is_what_the_two_rates_say():
    found = launch_by(BY_RATE)
    assert [round(1e6 * seconds) for seconds in found] == [31, 29]
    by_latency = [round(1e6 * seconds) for seconds in launch_by(LATENCIES)]
    assert by_latency == [38, 33]
    program = HOSTS["eager-program"]
    mean = sum(found) / 2
    assert program.launch_seconds == pytest.approx(mean, rel=0.02)


def times_off(host):
    """Return (model, simulated over measured) of small steps on an H200."""
    record = json.loads((DATA / "calibrated_h200.json").read_text())
    rows = iter(record["provenance"]["check"])
    found = []
    with sim.machine(accelerator="h200", host=host):
        (device,) = dpkit.devices(1, kind="sim")
        for case in CASES:
            for size in case.batch_sizes:
                row = next(rows)
                assert (row["model"], row["batch_size"]) == (case.name, size)
                (seconds,) = step_seconds(case, size, device, num_steps=1)
                found.append((case.name, seconds / row["measured_seconds"]))
    return found


@pytest.mark.parametrize(
    ("host", "mean"),
    [("eager", 4.8), ("eager-modules", 2.4), ("eager-program", 1.33)],
)
def test_how_far_off_hosts_are_on_small_steps_of_an_h200(host, mean):
    """As the page says, and why scripts are forecast with the last."""
    found = times_off(host)
    assert len(found) == 15
    factors = [max(factor, 1 / factor) for _, factor in found]
    assert geometric_mean(factors) == pytest.approx(mean, rel=0.02)
    if host != "eager-program":
        assert all(factor < 1 for _, factor in found)
        return
    of_images = [
        max(factor, 1 / factor)
        for name, factor in found
        if name in ("ResNet-18", "MobileNet")
    ]
    assert len(of_images) == 6
    assert max(of_images) == pytest.approx(1.25, abs=0.02)
    assert 1 / max(factors) == min(factor for _, factor in found)
    assert max(factors) == pytest.approx(1.65, abs=0.05)
