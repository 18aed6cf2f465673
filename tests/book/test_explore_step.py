"""The live figure of a data-parallel step."""

import re

import pytest

from dpbook.explore.curves import FAINT
from dpbook.explore.step import BUCKETS, EACH, ONE_PROCESS, PER_DEVICE, STEP
from dpbook.formulas.networks import network
from dpbook.formulas.parallel_step import parallel_step
from dpkit.sim.hardware.clusters import cluster
from dpkit.units import show_seconds


def test_it_starts_where_two_devices_are_slower_than_one():
    shown = STEP.ask()
    assert shown.sentence == (
        "Two devices take 1.57 times as long as one: 142 launches by one "
        "process take 99 % of the step. The gradients take 312 µs "
        "to send, all of it after backward."
    )
    facts = dict(shown.facts)
    assert facts["on one device"] == "701.4 µs"
    assert facts["images a second, against one device"] == "0.64 times"


def test_a_process_each_takes_most_of_the_loss_back():
    assert "1.18 times" in STEP.ask(processes=EACH).sentence


def test_a_large_network_gains():
    shown = STEP.ask(name="ResNet-18", counted=PER_DEVICE)
    assert "for 2 times the images: a device computes" in shown.sentence
    assert dict(shown.facts)["images a second, against one device"] == (
        "1.68 times"
    )


def test_faster_is_said_to_be_faster():
    shown = STEP.ask(name="ResNet-18", processes=EACH)
    assert shown.sentence.startswith("Two devices are 1.")
    assert " times as fast as one: " in shown.sentence


@pytest.mark.parametrize("link", ["pcie3", "nvlink2"])
def test_what_backward_hides_is_what_is_sent_beside_it(link):
    settings = {"counted": PER_DEVICE, "link": link, "algorithm": "ring"}
    at = {"name": "ResNet-18", "processes": BUCKETS, **settings}
    machine = cluster(2, "v100-pcie", link, host="eager", hosts="per_device")
    found = parallel_step(
        network("ResNet-18"), 512, machine, algorithm="ring", in_buckets=True
    )
    backward = max(
        s.end for s in found.stretches if s.what == "backward" and s.busy
    )
    after = max(s.end for s in found.stretches if s.what == "gradients")
    # What is left over follows backward, with no pause in it.
    left = after - backward
    assert found.hidden == pytest.approx(found.gradients - left)
    hidden = show_seconds(found.hidden)
    assert f"backward hides {hidden} of that." in STEP.ask(**at).sentence


def test_one_device_sends_nothing():
    assert "gradients" not in STEP.ask(devices=1).sentence


def test_the_picture_shows_who_waits_for_whom():
    picture, curves = STEP.ask(devices=8).pictures
    assert "device 0, device 1, device 7" in picture.title
    assert ">LeNet on 8 × v100-pcie, pcie3</text>" in picture.svg
    assert ">makespan " in picture.svg
    assert "waiting" in picture.svg
    assert "adding up gradients" in curves.svg
    assert "device 1" not in STEP.ask(devices=1).pictures[0].title


BEHIND = f'stroke="{FAINT}"'


def test_what_was_before_a_control_moved_lies_behind():
    before = {**STEP.start, "processes": EACH}
    shown = STEP.ask(before=before, devices=4)
    was = STEP.ask(**before)
    now = STEP.ask(devices=4)
    took = dict(was.facts)["a step"]
    words = f"devices: 2, processes: {EACH}"
    assert shown.sentence == (
        f"{now.sentence} Before ({words}) a step took {took}."
    )
    assert shown.facts[1] == ("a step before", took)
    curves = shown.pictures[1]
    # The curve, its line in the key, and a ring at two devices.
    assert curves.svg.count(BEHIND) == 3
    assert ">a step before</text>" in curves.svg
    _, of_now = now.pictures[1].title.split(": ")
    _, of_was = was.pictures[1].title.split(": ")
    assert curves.title.endswith(f": {of_now}; before ({words}): {of_was}")
    assert BEHIND not in now.pictures[1].svg


def test_the_axis_reaches_up_to_what_was_before():
    ticks = {}
    for processes in (EACH, ONE_PROCESS):
        before = {**STEP.start, "processes": processes}
        shown = STEP.ask(before=before, processes=EACH)
        ticks[processes] = re.findall(r">([\d.]+ ms)<", shown.pictures[1].svg)
    assert ticks[EACH][-1] == "3 ms"
    assert ticks[ONE_PROCESS][-1] == "5 ms"


def test_a_curve_that_was_far_longer_is_told_and_not_drawn():
    before = {**STEP.start, "name": "ResNet-18"}
    shown = STEP.ask(before=before)
    took = dict(STEP.ask(**before).facts)["a step"]
    assert shown.sentence.endswith(
        f"Before (network: ResNet-18) a step took {took}, too long to be "
        "drawn beside these curves."
    )
    assert BEHIND not in shown.pictures[1].svg


def test_buckets_travel_beside_backward():
    found = {}
    for processes in (EACH, BUCKETS):
        shown = STEP.ask(name="ResNet-18", devices=4, processes=processes)
        found[processes] = dict(shown.facts)["a step"]
    assert found[BUCKETS] != found[EACH]


def test_three_controls_stand_open():
    controls = STEP.for_page()["controls"]
    found = [c["name"] for c in controls if not c["folded"]]
    assert found == ["name", "images", "devices"]


def test_too_few_images_are_refused_at_their_place():
    shown = STEP.ask(images=9)
    assert not shown.refused
    lists = STEP.controls["images"]
    assert lists.stops[0] == 8
    assert STEP.ask(images=4).place == "images"


@pytest.mark.parametrize("name", ["LeNet", "ResNet-18", "wide"])
def test_every_first_touch_shows_something(name):
    for move, shown in STEP.frames(name=name):
        assert shown.sentence, move
        assert len(shown.pictures) == 2
