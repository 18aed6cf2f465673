"""The first picture of a chapter: it shows what the chapter says."""

import re
from xml.etree import ElementTree

import nbformat
import pytest

import dpkit
from dpbook.common.shares import Column, Device, draw_moment, grid, named
from dpbook.experts.pictures import draw_all_to_alls
from dpbook.job.pictures import draw_lost_process
from dpbook.layer_partitioning.pictures import draw_loss_in_parts
from dpbook.long_sequences.pictures import draw_ring
from dpbook.mesh.pictures import draw_each_way
from dpbook.network_partitioning.pictures import replays
from dpbook.own_script.pictures import draw_both_runs
from dpbook.plan_a_run.pictures import draw_layout
from dpbook.sharding.pictures import draw_what_a_device_keeps
from dpbook.splitting.grid import groups_of
from dpbook.splitting.pictures import draw_groups
from dpkit import schedules
from tests.repository import ROOT

SVG = "{http://www.w3.org/2000/svg}"
NAMES = {
    "sharding": (draw_what_a_device_keeps, "device", 4),
    "long-sequences": (draw_ring, "rank", 3),
    "experts": (draw_all_to_alls, "rank", 2),
    "mesh": (draw_each_way, "rank", 2),
    "cluster": (draw_lost_process, "rank", 3),
    "own-script": (draw_both_runs, "process", 4),
    "plan-a-run": (draw_layout, "device", 8),
    "two-ways": (draw_groups, "node", 2),
    "split-layers": (draw_loss_in_parts, "device", 2),
}


def words_of(picture):
    root = ElementTree.fromstring(picture.svg)
    return [element.text for element in root.iter(SVG + "text")]


def chapter(name):
    return nbformat.read(ROOT / "book" / f"{name}.ipynb", as_version=4)


def table_of(name, head):
    """Return the rows of a table in a chapter, from the row of its head."""
    (text,) = [c.source for c in chapter(name).cells if head in c.source]
    lines = text[text.index(head) :].split("\n\n")[0].splitlines()
    return [re.findall(r"[^|]+", line) for line in lines[2:]]


@pytest.mark.parametrize("name", NAMES)
def test_each_picture_names_its_devices_and_all_lies_in_it(name):
    draw, device, count = NAMES[name]
    for picture in draw().pictures:
        root = ElementTree.fromstring(picture.svg)
        assert root.get("aria-label") == picture.title
        words = words_of(picture)
        found = [w for w in words if re.fullmatch(device + r" \d", w)]
        assert found == [f"{device} {i}" for i in range(count)]
        _, _, width, height = map(float, root.get("viewBox").split())
        for text in root.iter(SVG + "text"):
            reach = 6.5 * len(text.text)
            anchor = text.get("text-anchor", "start")
            left = {"start": 0, "middle": reach / 2, "end": reach}[anchor]
            x = float(text.get("x")) - left
            assert 0 <= x <= width - reach, text.text
            assert 0 < float(text.get("y")) < height, text.text


@pytest.mark.parametrize("name", NAMES)
def test_it_is_the_first_output_of_its_chapter_and_up_to_date(name):
    draw, *_ = NAMES[name]
    cell = next(cell for cell in chapter(name).cells if cell.get("outputs"))
    assert cell.source.endswith(f"{draw.__name__}()")
    assert cell.outputs[0].data["text/html"] == draw()._repr_html_()


def test_shards_are_a_quarter_and_a_computed_block_is_whole():
    kept, between, computed = draw_what_a_device_keeps().pictures

    def cells(picture):
        root = ElementTree.fromstring(picture.svg)
        return sum(
            r.get("stroke") == "#ffffff" for r in root.iter(SVG + "rect")
        )

    assert cells(kept) == 4 * 24
    assert cells(between) == 24
    assert cells(computed) == 24 + 4 * 3


def test_the_ring_goes_round_as_the_table_of_the_chapter():
    rows = table_of("long-sequences", "| step | rank 0 |")
    for picture, (_, *meetings) in zip(
        draw_ring().pictures, rows, strict=True
    ):
        for meeting in meetings:
            words = meeting.strip().replace("block", "keys and values")
            assert words in picture.title


def test_tokens_go_as_the_table_of_the_chapter():
    chosen, arrived, _, back = table_of("experts", "| when | rank 0 has")
    first, second, third = draw_all_to_alls().pictures
    for rank in (1, 2):
        chosen_here = chosen[rank].strip().replace(" to ", "→")
        assert chosen_here in first.title
        assert re.findall(r"(\d)→", second.title)[3 * rank - 3 : 3 * rank] == (
            arrived[rank].strip().split(", ")
        )
        assert back[rank].strip() in third.title


def test_groups_are_those_of_the_grid():
    devices = dpkit.devices(8, kind="sim")
    for picture, neighbours in zip(draw_groups().pictures, (True, False)):
        root = ElementTree.fromstring(picture.svg)
        colours = [
            rect.get("fill")
            for rect in root.iter(SVG + "rect")
            if rect.get("stroke") == "#ffffff"
        ]
        groups = groups_of(devices, 4, neighbours)
        for group in groups:
            assert len({colours[device.index] for device in group}) == 1
        assert len(set(colours)) == len(groups)


def test_devices_are_numbered_as_the_planner_numbers_them():
    """The tensor group is inside, then the replicas, then the stages."""
    (picture,) = draw_layout().pictures
    root = ElementTree.fromstring(picture.svg)
    names = [t for t in root.iter(SVG + "text") if "device" in t.text]
    placed = {int(t.text[-1]): t for t in names}
    for device, name in placed.items():
        assert name.get("y") == placed[device ^ 1].get("y")
        assert name.get("x") == placed[device ^ 2].get("x")
        assert name.get("fill") == placed[device ^ 3].get("fill")
        assert name.get("fill") != placed[device ^ 4].get("fill")


def test_both_schedules_wait_for_as_long_on_each_device():
    given = {"a": schedules.NAMED["gpipe"], "b": schedules.NAMED["1f1b"]}
    steps = {name: make(3, 4) for name, make in given.items()}
    both = replays(steps, {"F": 1e-3, "B": 2e-3})
    busy = dict.fromkeys((span.device for span in both.spans), 0.0)
    for span in both.spans:
        busy[span.device] += span.end - span.start
    assert sorted(busy) == [f"{n}, device {i}" for n in "ab" for i in range(3)]
    assert list(busy.values()) == pytest.approx([12e-3] * 6)


def test_a_block_without_cells_is_not_drawn():
    columns = [Column("has", 80, 40), Column("not", 140, 40)]
    devices = [Device("a", 0, [named(["5"], 0), []])]
    picture = draw_moment(
        "t",
        "w",
        columns=columns,
        devices=devices,
        sent=[],
        description="Words.",
    )
    assert picture.svg.count("stroke-dasharray") == 1
    assert "5" in words_of(picture)
    assert grid(["#."], 1)[0][1].home is None
