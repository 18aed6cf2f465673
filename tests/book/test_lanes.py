"""Tests of common.lanes, and of the pictures at the top of chapters."""

import re
from xml.etree import ElementTree

import pytest
import torch

from dpbook.batch_norm.pictures import draw_sums
from dpbook.common.lanes import Arrow, device, draw_lanes
from dpbook.data_parallelism_concise.pictures import draw_wrappers
from dpbook.devices.pictures import draw_launches
from dpbook.elsewhere.pictures import draw_same_step
from dpbook.large_batches.pictures import draw_one_large_step
from dpbook.memory.pictures import draw_held
from dpbook.overlap.pictures import draw_buckets, messages
from dpbook.precision.pictures import NUMBERS, draw_orders
from dpbook.two_devices.pictures import draw_second_device
from dpkit.plans.trees import star, tree

SVG = "{http://www.w3.org/2000/svg}"
DRAWN = {
    draw_wrappers: ["process 0", "process 1", "device 0", "device 1"],
    draw_launches: ["host", "device 0"],
    draw_second_device: ["host", "device 0", "device 1"],
    draw_held: ["parameters", "activations", "gradients"],
    draw_buckets: ["backward", "link, 1", "link, 2", "link, 4"],
    draw_sums: ["device 0", "device 1", "device 2"],
    draw_orders: [f"device {rank}" for rank in range(4)],
    draw_one_large_step: [f"device {rank}" for rank in range(4)],
    draw_same_step: ["device 0", "device 1"],
}


def written(picture):
    """Return the words of a picture: where they stand, and what they say."""
    return list(ElementTree.fromstring(picture.svg).iter(SVG + "text"))


def said(panels):
    return [text.text for p in panels.pictures for text in written(p)]


@pytest.mark.parametrize("draw", DRAWN, ids=lambda draw: draw.__name__)
def test_every_device_has_its_lane(draw):
    panels = draw()
    assert set(DRAWN[draw]) <= set(said(panels))
    for picture in panels.pictures:
        assert re.fullmatch(r".+\. .+\.", picture.title)


@pytest.mark.parametrize("draw", DRAWN, ids=lambda draw: draw.__name__)
def test_words_lie_in_their_boxes(draw):
    for picture in draw().pictures:
        root = ElementTree.fromstring(picture.svg)
        boxes = [
            [float(rect.get(k)) for k in ("x", "y", "width", "height")]
            for rect in root.iter(SVG + "rect")
            if rect.get("rx") == "3"
        ]
        first = min(x for x, *_ in boxes)
        for text in written(picture):
            x, y = float(text.get("x")), float(text.get("y"))
            bold = text.get("font-weight") is not None
            reach = (7.4 if bold else 6.3) * len(text.text)
            if text.get("text-anchor") is None and bold:
                assert x + reach <= first, text.text
            for left, top, width, height in boxes:
                if left < x < left + width and top < y < top + height:
                    assert reach <= width, text.text


def test_an_arrow_leads_from_block_to_block():
    lanes = device(0, "a", "b", "c"), device(1, "a", "", "c")
    sent = [
        Arrow((1, 2), (0, 2)),
        Arrow((0, 2), (1, 2)),
        Arrow((1, 0), (0, 1)),
    ]
    root = ElementTree.fromstring(draw_lanes("A picture", lanes, sent).svg)
    shafts = [p.get("d") for p in root.iter(SVG + "path") if p.get("stroke")]
    up, down, across = (
        [*map(float, re.findall(r"[\d.]+", shaft))] for shaft in shafts
    )
    first, second = (
        float(rect.get("y")) + float(rect.get("height")) * (rank == 0)
        for rank, rect in enumerate(
            rect for rect in root.iter(SVG + "rect") if rect.get("rx") == "6"
        )
    )
    assert first < up[3] < up[1] < second  # between the lanes
    assert up[0] == up[2]
    assert down == [*up[2:], *up[:2]]
    assert across[0] < across[2] < up[0]
    assert across[3] < first < second < across[1]


@pytest.mark.parametrize(("number", "plan"), [(0, star(4)), (1, tree(4))])
def test_the_orders_are_those_of_star_and_tree(number, plan):
    picture = draw_orders().pictures[number]
    numbers = [torch.tensor(n, dtype=torch.bfloat16) for n in NUMBERS]
    for message in (m for step in plan.steps for m in step if m.adds):
        numbers[message.target] += numbers[message.source]
    assert picture.title.endswith(f" {int(numbers[0])}.")


@pytest.mark.parametrize(("count", "end"), [(1, 15.5), (2, 13.0), (4, 14.0)])
def test_a_link_sends_a_bucket_when_its_layers_are_done(count, end):
    blocks = messages(count)
    ends = [block.start + block.length for block in blocks]
    assert [block.start for block in blocks[1:]] == ends[:-1]
    assert ends[-1] == end
    assert blocks[0].is_idle
    assert ends[0] == 8 / count  # two columns for each of four layers
