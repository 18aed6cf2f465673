"""Live figures: their controls, their frames, and what the pipeline shows."""

import json
import math
import re

import pytest

from dpbook.explore.all import FIGURES, answer
from dpbook.explore.figure import (
    Choice,
    Lists,
    LiveFigure,
    Number,
    SettingError,
    Shown,
)
from dpbook.explore.pipeline import PIPELINE, SCHEDULES
from dpkit.schedules.named import SCHEDULE_NAMES
from dpkit.sim.timeline.drawing import QUIET

WHOLE = Number("devices", 4, (1, 4, 1024))
TIME = Number("hop", 0.0, (0.0, 0.5, 2.0), "ms")
WORD = Choice("colour", "red", ("red", "blue"))
ORDER = Lists("device", "a b\nc")


@pytest.mark.parametrize(
    ("control", "sent", "accepted"),
    [
        (WHOLE, 7, 7),
        (WHOLE, 1024.0, 1024),
        (TIME, 1, 1.0),  # how a browser writes 1.0
        (WORD, "blue", "blue"),
        (ORDER, "b\nc a", "b\nc a"),
    ],
)
def test_what_a_page_sends_gets_the_type_of_the_control(
    control, sent, accepted
):
    found = control.accept("x", sent)
    assert (found, type(found)) == (accepted, type(accepted))


@pytest.mark.parametrize(
    ("control", "sent", "words"),
    [
        (WHOLE, 2.5, r"a whole number from 1 to 1,024 \(devices: 2.5\)"),
        (WHOLE, 0, r"\(devices: 0\)"),
        (WHOLE, "four", r"\(devices: four\)"),
        (TIME, 2.1, r"a number from 0.0 to 2.0 \(hop: 2.1\)"),
        (TIME, math.nan, r"\(hop: nan\)"),
        (TIME, None, r"\(hop: None\)"),
        (WORD, "green", r"\(colour: green, known: red, blue\)"),
        (ORDER, "a b\nd", "words are missing or new"),
        (ORDER, "a b", "words are missing or new"),
    ],
)
def test_what_a_control_cannot_be_is_refused_at_its_place(
    control, sent, words
):
    with pytest.raises(SettingError, match=words) as caught:
        control.accept("x", sent)
    assert caught.value.place == "x"


def sums(kind, n, more):
    if n == 2:
        raise SettingError("two is not shown", "n")
    return Shown(sentence=f"{kind} {n + more}")


SUMS = LiveFigure(
    "sums",
    "Sums",
    sums,
    {
        "kind": Choice("kind", "plain", ("plain", "fancy")),
        "n": Number("n", 1, (1, 2, 3)),
        "more": Number("more", 0, (0, 9), shown_for=("kind", ("fancy",))),
    },
    presets={"three": {"n": 3}, "both": {"kind": "fancy", "more": 9}},
)


def test_a_frame_is_what_one_touch_shows():
    found = [(move, s.sentence or s.refused) for move, s in SUMS.frames()]
    assert found == [
        ({"kind": "fancy"}, "fancy 1"),
        ({"n": 2}, "two is not shown"),
        ({"n": 3}, "plain 3"),  # the preset "three" is this one
        ({"kind": "fancy", "more": 9}, "fancy 10"),
    ]


def test_frames_begin_where_a_cell_begins():
    found = SUMS.frames(kind="fancy", n=3)
    moves = [move for move, _ in found]
    assert moves == [
        {"kind": "plain"},
        *({"n": 1}, {"n": 2}),
        {"more": 9},  # it is shown now
        *({"n": 3}, {"kind": "fancy", "more": 9}),
    ]
    assert [s.sentence for _, s in found][3] == "fancy 12"


def test_a_refusal_says_where():
    shown = SUMS.ask(n=2)
    assert (shown.refused, shown.place) == ("two is not shown", "n")
    assert SUMS.ask(n=9).place == "n"


def test_the_page_asks_by_name():
    asked = {"figure": "pipeline", "settings": {"devices": 2}}
    assert answer(json.dumps(asked)) == PIPELINE.ask(devices=2).as_json()
    with pytest.raises(ValueError, match="unknown figure"):
        answer('{"figure": "none", "settings": {}}')


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_can_be_begun_and_moved(name):
    figure = FIGURES[name]
    assert figure.name == name
    assert name.isidentifier()  # it stands in addresses and ids
    begun = figure.ask()
    assert begun.pictures, begun.refused
    assert begun.sentence
    assert figure.ask().as_json() == begun.as_json()
    for words, preset in figure.presets.items():
        assert not figure.ask(**preset).refused, words
    moved = [shown.as_json() for _, shown in figure.frames()]
    lists = [isinstance(c, Lists) for c in figure.controls.values()]
    assert len(moved) > 3 or all(lists)  # there is no frame of an order
    assert begun.as_json() not in moved


@pytest.mark.parametrize("name", FIGURES)
def test_the_stops_of_a_slider_grow_and_hold_the_start(name):
    for control in FIGURES[name].controls.values():
        if isinstance(control, Number):
            assert list(control.stops) == sorted(set(control.stops))
            assert control.start in control.stops


def facts_of(**settings):
    """Return each fact of the pipeline: its name, and a value a schedule."""
    return {name: values for name, *values in PIPELINE.ask(**settings).facts}


def steps_of(**settings):
    """Return the milliseconds of each step, as the figure writes them."""
    found = [words.split() for words in facts_of(**settings)["a step"]]
    return [float(v) * {"ms": 1, "s": 1000}[unit] for v, unit in found]


def marks(picture):
    """Return the words below a timeline, and where they stand."""
    below = rf'<text x="([\d.]+)" [^>]*fill="{QUIET}"[^>]*>(\d+)</text>'
    return re.findall(below, picture.svg)


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize(("p", "m"), [(1, 1), (3, 5), (4, 8), (7, 2)])
def test_a_step_takes_what_the_formula_says(schedule, p, m):
    found = steps_of(
        schedule=schedule, devices=p, micro_batches=m, backward=1.5
    )
    assert set(found) == {(m + p - 1) * 2.5}  # of both schedules


def test_stages_of_one_device_share_its_time():
    found = steps_of(schedule="interleaved", stages=2, compare="nothing")
    assert found == [8 * 3 + 3 * 3 / 2]  # the bubble, over two stages


def test_what_is_kept_is_counted_in_whole_micro_batches():
    found = facts_of()["micro-batches kept, by device"]
    assert found == ["4, 3, 2, 1", "8, 8, 8, 8"]


def test_two_schedules_stand_above_each_other_on_one_scale():
    shown = PIPELINE.ask(schedule="zb-h1", compare="naive")
    upper, lower = shown.pictures
    assert steps_of(schedule="zb-h1", compare="naive") == [27, 96]
    assert upper.title.startswith("timeline, zb-h1: ")
    assert lower.title.startswith("timeline, naive: ")
    assert marks(upper) == marks(lower)
    # Alone, the shorter step fills the width.
    (alone,) = PIPELINE.ask(schedule="zb-h1", compare="nothing").pictures
    assert marks(alone) != marks(upper)


def test_both_schedules_are_named_with_what_they_take():
    shown = PIPELINE.ask(micro_batches=6, hop=1.0)
    assert shown.sentence == (
        "With 1f1b a step takes 39 ms, with a bubble of 53.8 %, and a device "
        "keeps up to 4 micro-batches. With gpipe a step takes 33 ms, with a "
        "bubble of 45.5 %, and a device keeps up to 6 micro-batches."
    )
    assert shown.facts[0] == ("schedule", "1f1b", "gpipe")


@pytest.mark.parametrize("compare", ["nothing", "gpipe"])
def test_a_schedule_is_not_compared_with_itself(compare):
    shown = PIPELINE.ask(schedule="gpipe", compare=compare)
    assert len(shown.pictures) == 1
    assert shown.sentence.count("a step takes") == 1
    assert {len(fact) for fact in shown.facts} == {2}


def test_an_interleaving_that_does_not_divide_is_refused():
    shown = PIPELINE.ask(schedule="interleaved", devices=3)
    assert "as many micro-batches as devices" in shown.refused
    assert not shown.pictures


def test_a_list_tells_the_page_its_rules():
    for figure in FIGURES.values():
        for told in figure.for_page()["controls"]:
            if told["kind"] == "lists":
                assert told["rules"].startswith("Wanted: ")


def test_a_fifth_rank_is_told_to_move():
    nodes = "b0 c0 d0\na0 a1 b1 c1 d1"
    shown = FIGURES["nodes"].ask(nodes=nodes)
    assert shown.sentence.endswith(
        "a node holds four ranks, and one now has 5: move one to the other "
        "node."
    )


def test_a_gradient_that_leaves_too_early_is_named_with_the_one_before():
    first, second, *rest = FIGURES["buckets"].start["buckets"].split()
    shown = FIGURES["buckets"].ask(
        buckets=" ".join([second, *rest, "\n", first])
    )
    assert shown.refused.startswith(f"{first} has to leave before {second}")


def test_more_ranks_than_are_drawn_are_told():
    facts = dict(FIGURES["collectives"].ask(ranks=13).facts)
    assert facts["messages are drawn"] == "up to 8 ranks"
    assert "messages are drawn" not in dict(FIGURES["collectives"].ask().facts)


def squares(n, more, before=None):
    was = f", was {before.settings['n']} ({before.changes})" if before else ""
    return Shown(sentence=f"{n * n + more}{was}")


SQUARES = LiveFigure(
    "squares",
    "Squares",
    squares,
    {"n": Number("n", 1, (1, 2, 4000)), "more": Number("more", 0, (0, 9))},
    keeps_before=True,
)


def test_what_was_before_is_told_with_what_has_changed():
    found = SQUARES.ask(before={"n": 4000, "more": 0}, n=2)
    assert found.sentence == "4, was 4000 (n: 4,000)"
    found = SQUARES.ask(before={"n": 1, "more": 9}, n=2)
    assert found.sentence == "4, was 1 (n: 1, more: 9)"
    assert SQUARES.ask(before=SQUARES.start).sentence == "1"
    assert SQUARES.for_page()["keeps_before"]


def test_in_a_frame_the_start_was_before():
    frames = [shown.sentence for _, shown in SQUARES.frames(n=2)]
    assert frames == [
        "1, was 2 (n: 2)",
        "16000000, was 2 (n: 2)",
        "13, was 2 (more: 0)",
    ]


def test_a_figure_that_keeps_nothing_is_asked_without_it():
    assert SUMS.ask(before={"n": 3}, n=1).sentence == "plain 1"
    assert "keeps_before" not in SUMS.for_page()


def test_every_schedule_can_be_chosen():
    assert {*SCHEDULES} == {*SCHEDULE_NAMES}
