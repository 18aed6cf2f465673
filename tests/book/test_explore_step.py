"""The live figure of a data-parallel step."""

import pytest

from dpbook.explore.step import BUCKETS, EACH, PER_DEVICE, STEP
from dpbook.formulas.networks import network
from dpbook.formulas.parallel_step import parallel_step
from dpkit.theory.hardware.clusters import cluster
from dpkit.theory.units import show_seconds


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
    found = parallel_step(network("ResNet-18"), 512, machine, "ring", True)
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
    assert "(devices 0, 1 and 7 of 8)" in picture.svg
    assert "waiting" in picture.svg
    assert "adding up gradients" in curves.svg
    assert "device 1" not in STEP.ask(devices=1).pictures[0].title


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
