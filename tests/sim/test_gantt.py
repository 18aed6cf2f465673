"""Tests of gantt and memory_chart: what the bars show."""

import random
import re
from dataclasses import replace
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from dpkit.schedules.named import gpipe, interleaved
from dpkit.schedules.replay import replay
from dpkit.sim.clock.record import Block, Span
from dpkit.sim.timeline import bars, drawing, gantt, memory_chart
from dpkit.sim.timeline.timeline import Timeline

LABEL = "simulated (v100-pcie, pcie3)"
SVG = "{http://www.w3.org/2000/svg}"


def timeline():
    return Timeline(
        [
            Span("sim:0", "compute", "mm", "compute", 0.0, 0.004, 12, 5000),
            Span("sim:0", "stream 1", "copy to sim:1", "copy", 0.004, 0.006),
            Span("sim:1", "compute", "copy from sim:0", "copy", 0.004, 0.006),
            Span("sim:1", "compute", "mm<a&b>", "compute", 0.006, 0.01),
            Span("host", "python", "mm", "launch", 0.0, 0.001),
            Span("host", "python", "wait for sim:1", "wait", 0.001, 0.01),
        ],
        [Block("sim:0", 2**20, "parameters", -1)],
        [],
        LABEL,
    )


def many(num_spans, num_devices=8):
    """Make spans too short and too many to be seen."""
    chance = random.Random(0)
    each = num_spans // num_devices
    spans = []
    for d in range(num_devices):
        now = 0.0
        for _ in range(each):
            start = now + chance.choice([0, 2e-6, 3e-5, 2e-4])
            now = start + chance.choice([4e-6, 8e-6, 3e-5, 3e-4])
            kind = chance.choice(["compute", "copy"])
            name = f"void at::native::kernel<{chance.random()}>(float*)" * 3
            spans.append(
                Span(f"sim:{d}", "compute", name, kind, start, now, 8, 9)
            )
    return Timeline(spans, label=LABEL)


def parsed(picture):
    root = ElementTree.fromstring(picture.svg)
    assert root.tag == SVG + "svg"
    return root


def words(picture):
    return [t.text for t in parsed(picture).iter(SVG + "text")]


def drawn(picture):
    """Return the bars: x, y, width, height, fill, and what they say."""
    found = []
    for rect in parsed(picture).iter(SVG + "rect"):
        title = rect.find(SVG + "title")
        if title is not None:
            numbers = [float(rect.get(k)) for k in "x y width height".split()]
            found.append((*numbers, rect.get("fill"), title.text))
    return found


PICTURES = {
    "timeline": lambda: timeline().draw(),
    "many": lambda: many(2000).draw(),
    "empty": lambda: Timeline().draw(),
    "memory": lambda: timeline().draw_memory("sim:0"),
    "no memory": lambda: timeline().draw_memory("sim:5"),
}


@pytest.mark.parametrize("name", PICTURES)
def test_the_same_bytes_twice(name):
    assert PICTURES[name]().svg == PICTURES[name]().svg


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_fits_a_page(name):
    picture = PICTURES[name]()
    root = parsed(picture)
    assert picture._repr_svg_() == picture.svg
    assert repr(picture) == f"<drawing: {picture.title}>"
    assert root.get("role") == "img"
    assert root.get("aria-label") == picture.title
    width, height = float(root.get("width")), float(root.get("height"))
    assert width <= 760
    assert root.get("viewBox") == f"0 0 {width:g} {height:g}"
    assert "max-width:100%" in root.get("style")
    ground = root.find(SVG + "rect")
    assert ground.get("fill") == "#ffffff"
    assert ground.get("width") == root.get("width")
    for text in root.iter(SVG + "text"):
        assert 0 < float(text.get("y")) < height
        assert 0 <= float(text.get("x")) <= width


@pytest.mark.parametrize("name", PICTURES)
def test_names_in_a_picture_are_its_own(name):
    """Pictures in one page of HTML must not fill from each other."""
    svg = PICTURES[name]().svg
    made = re.findall(r'<pattern id="([^"]+)"', svg)
    used = re.findall(r"url\(#([^)]+)\)", svg)
    assert set(used) <= set(made)
    others = [PICTURES[other]().svg for other in PICTURES if other != name]
    assert not any(f'id="{pattern}"' in o for pattern in made for o in others)


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [
        p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4
        for p in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(colour, ground="#ffffff"):
    a, b = sorted([luminance(colour), luminance(ground)])
    return (b + 0.05) / (a + 0.05)


def test_contrast():
    assert contrast("#000000") == pytest.approx(21)
    for colour in (drawing.INK, drawing.QUIET):
        assert contrast(colour) > 4.5, "words"
    solid = {drawing.BLUE, drawing.AMBER, drawing.GREEN, drawing.VIOLET}
    for colour in solid | {gantt.NARROW, drawing.QUIET}:
        assert contrast(colour) > 3
        assert contrast(colour, drawing.TRACK) > 3
    fills = {*gantt.SPAN_FILLS.values(), *memory_chart.CATEGORY_FILLS.values()}
    known = {*solid, drawing.QUIET, "#ffffff"}
    assert {f for f in fills if not f.startswith("url")} <= known
    assert contrast("#ffffff", drawing.BLUE) > 4.5, "names in bars"


def test_bars_lie_where_the_spans_do():
    found = {b[5].splitlines()[0]: b for b in drawn(timeline().draw())}
    assert set(found) == {span.name for span in timeline().spans}
    x0, _, width, _, fill, says = found["copy to sim:1"]
    scale = width / 0.002
    assert fill.startswith("url(#")
    assert says.splitlines() == ["copy to sim:1", "2 ms from 4 ms"]
    for start, end, name in [
        (0.004, 0.006, "copy from sim:0"),
        (0.006, 0.01, "mm<a&b>"),
        (0.001, 0.01, "wait for sim:1"),
    ]:
        x, _, width, *_ = found[name]
        # A frame, and a gap to the neighbour, take a pixel.
        assert x - x0 == pytest.approx((start - 0.004) * scale, abs=2.1)
        assert width == pytest.approx((end - start) * scale, abs=2.1)
    assert found["mm<a&b>"][0] + found["mm<a&b>"][2] <= drawing.WIDTH


def test_bars_lie_in_the_row_of_their_stream():
    picture = timeline().draw()
    tops = {b[5].splitlines()[0]: b[1] for b in drawn(picture)}
    names = [
        (float(t.get("y")), t.text) for t in parsed(picture).iter(SVG + "text")
    ]
    for name, before in [
        ("wait for sim:1", "host"),
        ("copy to sim:1", "sends"),
        ("mm<a&b>", "sim:1"),
    ]:
        (y,) = [y for y, text in names if text == before]
        assert tops[name] < y < tops[name] + gantt.BAR
    compute, stream, other = (
        tops[n] for n in ("mm", "copy to sim:1", "copy from sim:0")
    )
    assert compute < stream < other
    assert other - stream > stream - compute, "devices stand apart"
    order = [t for t in words(picture) if t in ("host", "sim:0", "sim:1")]
    assert order == ["host", "sim:0", "sim:1"]


def test_what_is_written_on_the_picture():
    found = words(timeline().draw())
    assert {LABEL, "makespan 10 ms", "ms", "0", "10"} <= set(found)
    kinds = ["computing", "copying", "launching", "waiting", "idle"]
    assert [w for w in found if w in kinds] == kinds
    assert {"wait for sim:1", "mm", "sends", "computes"} <= set(found)
    assert "waiting" not in words(many(100).draw()), "none waits there"
    assert "python" not in found, "a row alone needs no name"


@pytest.mark.parametrize(
    ("names", "word"),
    [
        (["copy to sim:1", "copy to sim:2"], "sends"),
        (["copy from sim:1"], "receives"),
        (["copy from sim:1", "copy to sim:1"], "sends, receives"),
        (["allreduce"], "sends, receives"),
        (["mm"], "stream 1"),
    ],
)
def test_a_row_is_named_by_what_it_does(names, word):
    spans = [
        Span("sim:0", "stream 1", name, "copy", i, i + 1)
        for i, name in enumerate(names)
    ]
    if names == ["mm"]:
        spans = [replace(span, kind="compute") for span in spans]
    assert word in words(Timeline(spans).draw())


def test_the_row_of_a_device_that_computes_is_hatched_where_it_is_idle():
    grounds = {}
    for box in parsed(timeline().draw()).iter(SVG + "rect"):
        # The ground of a row is drawn before its bars; waiting is white.
        if box.get("y") and box.get("fill") != "#ffffff":
            grounds.setdefault(box.get("y"), box.get("fill"))
    hatched = [fill.endswith("idle)") for fill in list(grounds.values())[-4:]]
    assert hatched == [False, True, False, True], "host, sim:0 twice, sim:1"


def test_amounts_are_told():
    (says,) = [b[5] for b in drawn(timeline().draw()) if "12 B" in b[5]]
    assert says.splitlines() == ["mm", "4 ms from 0 s", "12 B, 5 kFLOP"]


def test_names_are_written_only_where_they_fit():
    spans = [
        Span("sim:0", "compute", "elementwise", "compute", 0.0, 0.9),
        Span("sim:0", "compute", "reduction", "compute", 0.98, 1.0),
    ]
    found = words(Timeline(spans).draw())
    assert "elementwise" in found
    assert "reduction" not in found
    narrow = [
        Span("sim:0", "compute", name, "compute", i, i + 1.0)
        for i, name in enumerate(15 * ["mm", "re"])
    ]
    found = words(Timeline(narrow).draw())
    assert (found.count("re"), found.count("mm")) == (15, 0), "m is wide"
    copies = [
        Span("sim:0", "compute", "copy to sim:1", "copy", i, i + 1.0)
        for i in range(8)
    ]
    assert words(Timeline(copies).draw()).count("to sim:1") == 8


def test_the_axis_can_be_longer_than_the_timeline():
    (short,) = drawn(Timeline(timeline().spans[:1]).draw())
    (long,) = drawn(Timeline(timeline().spans[:1]).draw(least_seconds=0.04))
    assert long[2] == pytest.approx(short[2] / 10, rel=0.02)
    assert "40" in words(timeline().draw(least_seconds=0.04))


def test_the_title_is_read_aloud():
    picture = Timeline(timeline().spans, label='one "step"').draw()
    title = 'timeline, one "step": host, sim:0, sim:1, 10 ms'
    assert picture.title == parsed(picture).get("aria-label") == title


def test_a_timeline_that_begins_later_is_drawn_at_its_own_times():
    spans = [
        replace(span, start=max(span.start, 0.004), end=min(span.end, 0.0055))
        for span in timeline().spans
        if span.start < 0.0055 and span.end > 0.004
    ]
    picture = Timeline(spans).draw()
    assert {"4.0", "4.5", "5.0", "5.5"} <= set(words(picture))
    bar = next(b for b in drawn(picture) if "copy to" in b[5])
    assert "1.5 ms from 4 ms" in bar[5]
    texts = {t.text: t for t in parsed(picture).iter(SVG + "text")}
    assert bar[0] == float(texts["4.0"].get("x"))
    assert bar[0] + bar[2] < drawing.WIDTH
    assert texts["5.0"].get("text-anchor") == "middle"
    assert texts["5.5"].get("text-anchor") == "end", "it stays on the page"


def test_the_order_of_issue_does_not_show():
    crowd = many(2000)
    again = Timeline(crowd.spans[::-1], label=LABEL)
    assert sorted(drawn(again.draw())) == sorted(drawn(crowd.draw()))


def test_neighbours_stay_apart():
    spans = [
        Span("sim:0", "compute", str(i), "compute", i, i + 1.0)
        for i in range(20)
    ]
    found = sorted(drawn(Timeline(spans).draw()))
    for a, b in pairwise(found):
        assert 0.5 < b[0] - (a[0] + a[2]) < 1


def test_an_empty_timeline_says_so():
    assert words(Timeline(label=LABEL).draw()) == [
        "no spans: nothing took time in this timeline"
    ]


def test_spans_without_length_are_drawn():
    spans = [Span("sim:0", "compute", "view", "compute", 2.0, 2.0)]
    (bar,) = drawn(Timeline(spans).draw())
    assert bar[2] > 0.5


def test_signs_that_xml_does_not_allow():
    spans = [Span("sim:0", "a\x00b", "<\x1b&\ud800", "od\x0bd", 0.0, 1.0)]
    picture = Timeline(spans, label="\x07").draw()
    assert drawn(picture)[0][5].startswith("<□&□")


@pytest.mark.parametrize("num_devices", [1, 8, 40])
def test_many_spans_make_a_small_picture(num_devices):
    crowd = many(20_000, num_devices)
    picture = crowd.draw()
    assert len(picture.svg.encode()) < 300_000
    assert any("spans, the first" in bar[5] for bar in drawn(picture))
    assert any(w.startswith("low bars: work and") for w in words(picture))


def test_the_ink_is_the_time_that_was_spent():
    crowd = many(20_000, 2)
    spent = crowd.summary().devices["sim:0"]
    rows = drawn(crowd.draw())
    top = min(bar[1] for bar in rows)
    ink = {"compute": 0.0, "copy": 0.0}
    for _, y, width, height, fill, _ in rows:
        if y < top + gantt.ROW:
            kind = "copy" if fill.startswith("url") else "compute"
            ink[kind] += width * height / gantt.BAR
    assert ink["compute"] / ink["copy"] == pytest.approx(
        spent.busy / spent.exposed, rel=0.1
    )


def test_short_spans_are_drawn_as_one_and_long_ones_apart():
    times = [(0, 1), (1, 2), (2.5, 3), (12, 13), (13, 19), (19, 20), (20, 21)]
    spans = [Span("", "", str(a), "compute", a, b) for a, b in times]
    found = [
        (b.first.name, b.start, b.end, b.busy, b.count)
        for b in bars.merge(spans, 2, 0)
    ]
    assert found == [
        ("0", 0, 3, 2.5, 3),
        ("12", 12, 13, 1, 1),
        ("13", 13, 19, 6, 1),
        ("19", 19, 21, 2, 2),
    ]


def test_one_kind_does_not_keep_another_from_being_drawn_as_one():
    kinds = ["compute", "copy"] * 5000
    spans = [
        Span("sim:0", "compute", "", kind, i, i + 1.0)
        for i, kind in enumerate(kinds)
    ]
    found = drawn(Timeline(spans).draw())
    assert len(found) == 2
    assert {bar[3] for bar in found} == {gantt.BAR / 2}
    assert len({bar[1] for bar in found}) == 2, "neither hides the other"


def test_short_waits_do_not_look_like_launches():
    spans = []
    for i in range(500):
        spans.append(Span("host", "python", "", "launch", i, i + 0.1))
        spans.append(Span("host", "python", "", "wait", i + 0.1, i + 1.0))
    found = drawn(Timeline(spans).draw())
    assert {b[4] for b in found if b[3] > gantt.BAR / 2} == {"#ffffff"}


# Memory.

BLOCKS = [
    Block("sim:0", 4 * 2**20, "parameters", -1),
    Block("sim:1", 64 * 2**20, "parameters", 0),
    Block("sim:0", 3 * 2**20, "activations", 1, freed=4),
    Block("sim:0", 2 * 2**20, "gradients", 3),
    Block("sim:0", 2**20, "surprise", 6, freed=7),
]


def test_memory_in_the_order_of_issue():
    here = [b for b in BLOCKS if b.device == "sim:0"]
    totals = [sum(m.values()) >> 20 for m in memory_chart.history(here)]
    assert totals == [4, 7, 9, 6, 7, 6]
    assert memory_chart.history(here)[2] == {
        "parameters": 4 << 20,
        "gradients": 2 << 20,
        "activations": 3 << 20,
        "surprise": 0,
    }


def test_memory_before_the_first_event_and_after_a_release_in_it():
    blocks = [Block("", 5, "other", -1, freed=0), Block("", 3, "other", 1)]
    moments = memory_chart.history(blocks)
    assert [m["other"] for m in moments] == [5, 0, 3]
    assert memory_chart.history(blocks[1:])[0] == {"other": 0}


def test_the_legend_stays_on_the_page():
    blocks = [Block("sim:0", 1, c, 0) for c in memory_chart.CATEGORY_FILLS]
    picture = Timeline(blocks=blocks).draw_memory("sim:0")
    entries = {t.text: t for t in parsed(picture).iter(SVG + "text")}
    for category in memory_chart.CATEGORY_FILLS:
        x = float(entries[category].get("x"))
        assert x + drawing.LETTER * len(category) <= drawing.WIDTH
        assert float(entries[category].get("y")) < memory_chart.PLOT_TOP - 20


def outline(path):
    """Return the corners of an area as (x, y)."""
    corners = []
    for x, y, to in re.findall(r"[ML]([\d.]+) ([\d.]+)H([\d.]+)", path):
        corners += [(float(x), float(y)), (float(to), float(y))]
    return corners


def test_the_areas_stand_on_each_other():
    picture = Timeline(blocks=BLOCKS, label=LABEL).draw_memory("sim:0")
    areas = {
        path.find(SVG + "title").text: outline(path.get("d"))
        for path in parsed(picture).iter(SVG + "path")
        if path.find(SVG + "title") is not None
    }
    assert list(areas) == [
        "parameters: at most 4 MiB",
        "gradients: at most 2 MiB",
        "activations: at most 3 MiB",
        "surprise: at most 1 MiB",
    ]
    roofs = [area[: len(area) // 2] for area in areas.values()]
    floors = [area[len(area) // 2 :][::-1] for area in areas.values()]
    assert roofs[:-1] == floors[1:]
    ground = memory_chart.PLOT_BOTTOM
    assert {y for _, y in floors[0]} == {ground}
    mib = (ground - roofs[0][0][1]) / 4
    heights = [(ground - y) / mib for _, y in roofs[-1][::2]]
    assert heights == pytest.approx([4, 7, 9, 6, 7, 6], abs=0.01)


def test_the_peak_is_marked():
    picture = Timeline(blocks=BLOCKS, label=LABEL).draw_memory("sim:0")
    assert picture.title == "memory of sim:0: peak 9 MiB"
    assert {"peak 9 MiB", "MiB", LABEL} <= set(words(picture))
    (circle,) = parsed(picture).iter(SVG + "circle")
    width = memory_chart.PLOT_RIGHT - memory_chart.PLOT_LEFT
    # The third of six moments.
    middle = memory_chart.PLOT_LEFT + width * 2.5 / 6
    assert float(circle.get("cx")) == pytest.approx(middle, abs=0.01)


def test_a_long_history_keeps_its_peak():
    chance = random.Random(0)
    blocks = []
    for i in range(10_000):
        size = chance.randrange(1, 2**20)
        blocks.append(Block("sim:0", size, "other", 2 * i, 2 * i + 1))
    blocks[5000] = Block("sim:0", 2**22, "other", 10_000, 10_001)
    picture = Timeline(blocks=blocks).draw_memory("sim:0")
    assert picture.title == "memory of sim:0: peak 4 MiB"
    assert len(picture.svg) < 50_000


def test_a_device_without_memory_says_so():
    found = words(Timeline(blocks=BLOCKS).draw_memory("sim:7"))
    assert found == ["no memory of sim:7 in this timeline"]


def test_a_device_with_empty_tensors_alone():
    """Each is a block of 0 bytes."""
    blocks = [Block("sim:0", 0, "other", i) for i in range(2)]
    picture = Timeline(blocks=blocks).draw_memory("sim:0")
    assert picture.title == "memory of sim:0: peak 0 B"
    assert "peak 0 B" in words(picture)


def test_pictures_in_files(tmp_path):
    timeline().to_svg(tmp_path / "a.svg")
    written = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert written == timeline().draw().svg == timeline()._repr_svg_()


def test_a_long_name_stands_above_its_rows():
    def first_bar(device):
        spans = [
            Span(device, stream, "mm", "compute", 0.0, 1.0)
            for stream in ("compute", "receives")
        ]
        picture = Timeline(spans).draw()
        (name,) = [
            text
            for text in parsed(picture).iter(SVG + "text")
            if text.text == device
        ]
        x, y, *_ = drawn(picture)[0]
        return x, float(name.get("y")) < y

    x_of_short, short_above = first_bar("sim:0")
    x_of_long, long_above = first_bar("just in time, 449 MB")
    assert (long_above, short_above) == (True, False)
    assert x_of_long < x_of_short


def test_forward_and_backward_have_two_colours():
    spans = [
        Span("sim:0", "compute", name, "compute", i, i + 1.0, phase=phase)
        for i, (name, phase) in enumerate(
            [("mm", "forward"), ("mm", "backward"), ("sgd", "")]
        )
    ]
    picture = Timeline(spans).draw()
    forward, backward, other = (bar[4] for bar in drawn(picture))
    assert (forward, other) == (drawing.BLUE, drawing.VIOLET)
    assert "backward)" in backward, "it has stripes"
    assert [w for w in words(picture) if w in gantt.SPAN_FILLS] == [
        "forward",
        "backward",
        "other computing",
    ]
    assert picture.title.endswith(
        "; sim:0: forward 1 s, backward 1 s, other computing 1 s"
    )
    assert 'backward"' not in timeline().draw().svg
    alone = Timeline(spans[:1]).draw()
    assert "computing" in words(alone), "there is no backward to tell from"
    assert "forward" not in alone.title


def test_phases_are_not_drawn_as_one():
    spans = [
        Span("sim:0", "compute", "", "compute", i, i + 1.0, phase=phase)
        for i, phase in enumerate(["forward", "backward"] * 5000)
    ]
    assert len({bar[4] for bar in drawn(Timeline(spans).draw())}) == 2


def in_bars(schedule, forward=1.0):
    """Return what stands in the bars, and the notes."""
    picture = replay(schedule, {"F": forward, "B": 2.0}).draw()
    found = [
        t.text
        for t in parsed(picture).iter(SVG + "text")
        if t.get("class") == "in-bar"
    ]
    return found[:-1], found[-1]


def test_bars_of_a_pipeline_have_their_micro_batch():
    found, note = in_bars(gpipe(2, 3))
    assert sorted(found) == sorted(2 * "F0 F1 F2 B0 B1 B2".split())
    assert note == gantt.PASS_NOTE
    found, _ = in_bars(gpipe(2, 8), forward=0.4)
    assert sorted(found)[:16] == sorted(2 * "01234567"), "F is narrow"
    assert {"B0", "B7"} <= set(found)


def test_bars_have_their_stage_where_a_device_has_several():
    found, note = in_bars(interleaved(2, 2, chunks_per_device=2))
    assert {"0F0", "3B1"} <= set(found)
    assert note == gantt.STAGE_NOTE
