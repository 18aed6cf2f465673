"""The presets of hosts, against published latencies."""

import json
from pathlib import Path

import pytest

from dpkit import sim
from dpkit.lab.devices.latency import (
    SIDES,
    image_launches,
    image_seconds,
    published_seconds,
)
from dpkit.theory.hardware import HOSTS

DATA = Path(__file__).parent.parent / "book" / "_data"
RECORD = DATA / "efficientnet_nvidia.json"
PUBLISHED = published_seconds(RECORD)
# Of torchvision's networks, forward: kernels, and views.
LAUNCHES = {"efficientnet_b0": (238, 51), "efficientnet_b4": (475, 98)}


@pytest.fixture(autouse=True)
def _shapes_alone():
    """Devices without numbers: nothing is computed, and it takes no time."""
    with sim.machine(backing="meta", num_devices=1):
        yield


def ratio(network, host, mixed=False):
    """Return the simulated time of an image over the published one."""
    simulated = image_seconds(network, mixed, host)
    return simulated / PUBLISHED[network, mixed]


def test_images_have_the_sides_of_the_record():
    assert json.loads(RECORD.read_text())["side"] == SIDES


@pytest.mark.parametrize("network", SIDES)
def test_a_program_takes_the_published_latency(network):
    assert ratio(network, "eager-program") == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("network", SIDES)
def test_with_casts_that_nobody_fitted_it_takes_a_seventh_more(network):
    assert 1.1 < ratio(network, "eager-program", mixed=True) < 1.2


@pytest.mark.parametrize("network", SIDES)
def test_bare_operations_take_a_quarter_of_it(network):
    assert 0.22 < ratio(network, "eager") < 0.3
    assert 0.55 < ratio(network, "eager-modules") < 0.7


@pytest.mark.parametrize("network", SIDES)
def test_the_launches_are_those_that_the_source_counts(network):
    kernels, views = LAUNCHES[network]
    assert image_launches(network) == (kernels, views)
    source = HOSTS["eager-program"].sources["launch_seconds"]
    assert str(kernels) in source
    assert str(views) in source


def test_the_launch_is_what_the_two_latencies_say():
    """A view is counted as 1.5/8 of a launch, as of the host ``eager``."""
    found = [
        PUBLISHED[network, False] / (kernels + 1.5 / 8 * views)
        for network, (kernels, views) in LAUNCHES.items()
    ]
    assert [round(1e6 * seconds) for seconds in found] == [31, 29]
    program = HOSTS["eager-program"]
    mean = sum(found) / 2
    assert program.launch_seconds == pytest.approx(mean, rel=0.02)


@pytest.mark.parametrize("name", ["backward_launch_seconds", "view_seconds"])
def test_what_is_assumed_is_in_the_ratio_of_eager(name):
    eager, program = HOSTS["eager"], HOSTS["eager-program"]
    times = program.launch_seconds / eager.launch_seconds
    expected = times * getattr(eager, name)
    assert getattr(program, name) == pytest.approx(expected, rel=0.02)
    assert program.sources[name].startswith("assumed")
