"""The record of all comparisons, what it may be asked, and its programs."""

import json
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from recorders import comparisons as recorder
from recorders.trust import convolutional, korthikanti, notebook, plans
from recorders.trust.decided import decided
from recorders.trust.decisions import (
    how_many,
    is_more,
    joins,
    neighbours,
    smallest,
)

from dpbook.limits import tables, trust
from dpbook.limits.comparisons import (
    Comparison,
    Comparisons,
    Decision,
    decisions_table,
    mean_factor,
    read,
    rows_table,
    unseen,
    worst,
)
from dpbook.limits.on_cpu import compared
from dpbook.limits.pictures import (
    MESSAGES,
    TRAINING,
    plot_comparisons,
)
from dpkit.calibration.predictions import Prediction
from dpkit.units import show_factor
from tests.repository import ROOT
from tests.weekly import few_of

DATA = ROOT / "book" / "_data"
RECORD = read(DATA / "comparisons.json")
FOUND = trust.read_all(DATA)


def load(name):
    return json.loads((DATA / f"{name}.json").read_text())


def row_of(predicted, measured=100.0, **fields):
    row = Comparison(
        "a network", "a GPU", "1 GPU", "s", predicted, measured, "unseen", "w"
    )
    return replace(row, **fields)


def find(**fields):
    return [
        row
        for row in FOUND.rows
        if all(part in getattr(row, name) for name, part in fields.items())
    ]


# -- the record


def test_every_row_has_a_class_that_the_page_knows():
    assert {row.work for row in FOUND.rows} == set(trust.WORK)
    assert {d.work for d in FOUND.decisions} < set(trust.WORK)


def test_no_row_is_there_twice():
    keys = [
        (r.subject, r.hardware, r.configuration, r.unit) for r in FOUND.rows
    ]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("work", trust.WORK)
def test_what_a_class_may_be_asked_follows_from_its_rows(work):
    how_much, which, *_ = trust.WORK[work]
    assert trust.questions(FOUND.of(work)) == (how_much, which)


@pytest.mark.parametrize("work", trust.WORK)
def test_no_seconds_of_a_class_that_is_missed_by_a_fifth(work):
    rows = unseen(FOUND.of(work).rows)
    if not rows or mean_factor(rows) > 1.2:
        assert not trust.WORK[work].how_much


def test_the_worst_are_in_it():
    """Also those that no chapter liked to show."""
    assert {row.configuration for row in find(hardware="P40")} >= {
        "2 GPUs, 1 micro-batches",
        "4 GPUs, 4 micro-batches",
    }
    (alone,) = find(hardware="not named; K80", configuration="1 GPU")
    assert alone.factor < 0.6
    (replicas,) = find(subject="8 replicas of 530B")
    assert replicas.factor < 0.3
    (message,) = find(
        subject="two rates", hardware="H200, another", configuration="262,144"
    )
    assert 1.4 < message.factor < 1.5


PUBLISHED = [
    ("tensorflow_2017", "images_per_second", "k80 GCE"),
    ("tensorflow_2017", "images_per_second", "p100 DGX-1"),
]


@pytest.mark.parametrize(("name", "what", "hardware"), PUBLISHED)
def test_every_published_network_is_in_it(name, what, hardware):
    record = json.loads((DATA / f"{name}.json").read_text())
    for network, rates in record[what][hardware].items():
        rows = find(subject=network, hardware=hardware)
        assert {r.measured for r in rows if r.work == "convolutions"} == {
            rates["1"]
        }
        assert sum(r.work == "scaling" for r in rows) == len(rates) - 1


CHEAP = (
    recorder.on_pcie,
    recorder.by_a_library,
    recorder.in_stages,
    recorder.kernels_of_attention,
)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "part", few_of(recorder.PARTS, CHEAP), ids=lambda part: part.__name__
)
def test_a_part_is_what_the_record_holds(part):
    """If not: python scripts/record.py comparisons."""
    for row in part():
        (recorded,) = [
            r
            for r in RECORD.rows
            if replace(r, predicted=0, measured=0)
            == replace(row, predicted=0, measured=0)
        ]
        assert recorded.predicted == pytest.approx(row.predicted, rel=1e-3)
        assert recorded.measured == pytest.approx(row.measured, rel=1e-3)


def test_a_network_is_what_the_record_holds():
    (row,) = find(
        subject="alexnet", hardware="p100", configuration="1 GPU, batch 512"
    )[:1]
    found = convolutional.images_per_second("alexnet", 512, accelerator="p100")
    assert found == pytest.approx(row.predicted, rel=5e-3)


def test_lenet_is_what_the_record_holds():
    (row,) = find(subject="LeNet", configuration="2 GPUs, not 1")
    one, two = (notebook.lenet_seconds(k) for k in (1, 2))
    assert two / one == pytest.approx(row.predicted, rel=5e-3)


def test_a_transformer_is_what_the_record_holds():
    models = json.loads((DATA / "korthikanti2022.json").read_text())["models"]
    (row,) = find(subject="a step of 22B", configuration="full recomputation")
    found = korthikanti.step_seconds(korthikanti.model_of(models["22B"]))
    assert found == pytest.approx(row.predicted, rel=5e-3)


def test_the_decisions_follow_from_the_rows():
    """But those of which an order alone was published."""
    found = decided(RECORD.rows) + plans.orders(load)
    assert found == RECORD.decisions


def test_the_planner_has_one_choice_of_2021_the_wrong_way_round():
    """ZeRO-3 alone against a grid on 384 GPUs, where it finds a tie."""
    planned = RECORD.of(*trust.PLANS).decisions
    cuts = [d for d in planned if "cut" in d.question]
    (wrong,) = (d for d in cuts if not d.right)
    assert len(cuts) == 9
    assert wrong.hardware == "384 A100"
    assert "ZeRO-3" in wrong.predicted


def test_fused_attention_is_faster():
    record = json.loads((DATA / "comparisons.json").read_text())
    for name, seconds in record["fused_attention_seconds"].items():
        (row,) = find(
            subject=f"a step of {name}", configuration="full recomputation"
        )
        assert 0.7 * row.predicted < seconds < row.predicted


# -- what is done with it


def test_a_rate_has_the_seconds_of_one_unit():
    assert row_of(50, unit="images/s").seconds == (1 / 50, 1 / 100)
    assert row_of(50, unit="ms").seconds == pytest.approx((0.05, 0.1))
    assert row_of(50, unit="times one").seconds is None


def test_means_and_worst():
    rows = [row_of(200), row_of(25), row_of(500, kind="fitted")]
    # Off by 2 and by 4: the root of 8, and not a mean of +100 % and −75 %.
    assert mean_factor(rows[:2]) == pytest.approx(8**0.5)
    assert worst(rows) is rows[2]
    assert worst(unseen(rows)) is rows[1]


@given(st.lists(st.floats(0.1, 1e3), min_size=1, max_size=5))
def test_seconds_and_rates_are_off_by_one_factor(predicted):
    """2 s for 1 s is as far off as 0.5 a second for 1 a second."""
    rows = [row_of(value) for value in predicted]
    rates = [row_of(1 / value, 1 / 100, unit="1/s") for value in predicted]
    assert mean_factor(rows) == pytest.approx(mean_factor(rates))
    assert worst(rates).times_off == pytest.approx(worst(rows).times_off)
    for row, rate in zip(rows, rates):
        assert row.times_off == pytest.approx(rate.times_off)
        assert row.factor == pytest.approx(1 / rate.factor)


def test_a_factor_in_words():
    assert [show_factor(x) for x in (1, 1.255, 0.5)] == [
        "×1.00",
        "×1.25",
        "÷2.00",
    ]


def test_the_rule():
    right = Decision("?", "a", "b", "yes", "yes", "w")
    wrong = replace(right, measured="no")
    near, far = row_of(119), row_of(100 / 1.21)
    ask = trust.questions
    assert ask(Comparisons([near], [right] * 4 + [wrong])) == (True, True)
    assert ask(Comparisons([far], [right] * 3 + [wrong] * 2)) == (False, False)
    assert ask(Comparisons([near], [right] * 4)) == (True, False)
    fitted = replace(near, kind="fitted")
    assert ask(Comparisons([fitted, far], [])) == (False, False)
    assert ask(Comparisons([fitted], [])) == (False, False)


def test_the_tables():
    text = str(trust.summary(FOUND))
    assert all(work in text for work in trust.WORK)
    assert {row["work"] for row in trust.worst_table(FOUND).rows} == {
        row.work for row in unseen(FOUND.rows)
    }
    assert str(trust.words_table()).count("yes") == sum(
        how_much + which for how_much, which, *_ in trust.WORK.values()
    )
    assert len(rows_table(FOUND.rows).rows) == len(FOUND.rows)
    (line,) = decisions_table([Decision("?", "a", "b", "x", "y", "w")]).rows
    assert line["right"] == "no"
    assert len(tables.stays_out(FOUND).rows) == 7


@pytest.mark.parametrize("name", tables.PARAMETERS)
def test_the_parameters_are_those_of_the_simulated_networks(name):
    make, *_ = convolutional.NETWORKS[name]
    with torch.device("meta"):
        count = sum(p.numel() for p in make().parameters())
    assert tables.PARAMETERS[name] == pytest.approx(count, rel=0.01)


def test_over_nvlink_speed_ups_are_no_better_than_a_guess():
    """What the page says of speeds and speed-ups, line by line."""
    rows = {row["series"]: row for row in tables.speeds_table(FOUND).rows}
    for name, row in rows.items():
        ratios = float(row["of speed-ups"])
        if name.startswith("stages"):
            assert ratios - 1 < 0.6 * (float(row["factor of speeds"]) - 1)
            assert "of the guess" not in row
        elif name.endswith("NCCL"):
            assert ratios == pytest.approx(
                float(row["of the guess"]), abs=0.01
            )
    row = rows["replicas, K80"]
    assert float(row["of speed-ups"]) - 1 < (
        0.6 * (float(row["of the guess"]) - 1)
    )


def test_what_was_before_is_compared_with_what_is_now():
    path = DATA / "comparisons_before.json"
    before = json.loads(path.read_text())["rows"]
    table = tables.before_table(FOUND, path)
    assert sum(row["rows"] for row in table.rows) == len(before)


def test_scripts_have_a_row_for_each_run():
    path = DATA / "forecasts_of_scripts.json"
    runs = json.loads(path.read_text())["runs"]
    rows = tables.scripts_table(path).rows
    assert [row["run"] for row in rows] == [run["name"] for run in runs]
    for row, run in zip(rows, runs):
        assert (row["was"] == "compiled") == run["published"]["compiled"]
        ms = row["forecast, ms"], row["measured, ms"]
        assert ms[0] / ms[1] == pytest.approx(run["ratio"], rel=0.05)


def test_steps_on_a_cpu_become_rows():
    steps = [
        Prediction(
            "net",
            size,
            measured_seconds=1e-3 * size,
            least_seconds=1e-3 * size,
            predicted_seconds=took,
        )
        for size, took in ((4, 5e-3), (8, 6e-3))
    ] + [
        Prediction(
            "other",
            4,
            measured_seconds=1e-3,
            least_seconds=1e-3,
            predicted_seconds=2e-3,
        )
    ]
    found = compared(steps, "a CPU")
    assert [row.factor for row in found.rows] == [1.25, 0.75, 2]
    first, second = found.decisions
    assert (first.predicted, first.measured) == ("8", "4")
    assert second.right


@pytest.mark.parametrize("works", [TRAINING, MESSAGES], ids=["train", "send"])
def test_a_picture_has_a_mark_for_each_row(works, axes):
    plot_comparisons(FOUND.rows, works)._repr_svg_()
    marks = [m for m in axes[0].get_lines() if m.get_marker() != "None"]
    legend = {m.get_label(): m for m in marks if m.get_label() in works}
    assert list(legend) == list(works)
    looks = {(m.get_color(), m.get_marker()): w for w, m in legend.items()}
    assert len(looks) == len(works)
    drawn = [
        (looks[m.get_color(), m.get_marker()], *m.get_xydata()[0])
        for m in marks
        if len(m.get_xydata())
    ]
    expected = [
        (row.work, row.seconds[1], row.seconds[0] / row.seconds[1])
        for row in FOUND.rows
        if row.work in works and row.seconds
    ]
    assert sorted(drawn) == sorted(expected)
    x, y = axes[0].get_xlim(), axes[0].get_ylim()
    assert all(x[0] < a < x[1] and y[0] < b < y[1] for _, a, b in drawn)


def test_each_class_with_seconds_is_in_one_picture():
    timed = {row.work for row in FOUND.rows if row.seconds}
    assert sorted(timed) == sorted([*TRAINING, *MESSAGES])


# -- decisions


def test_neighbours_are_next_to_each_other_as_measured():
    rows = [
        row_of(predicted, measured, configuration=name)
        for name, predicted, measured in (
            ("a", 5, 5), ("b", 4, 9), ("c", 8, 7), ("d", 9, 9)
        )
    ]  # fmt: skip
    found = list(neighbours(rows, "?", lambda row: row.configuration))
    assert [d.subject for d in found] == ["a or c", "c or b"]
    assert [(d.predicted, d.measured) for d in found] == [
        ("a", "a"),
        ("b", "c"),
    ]
    rates = [replace(row, unit="images/s") for row in rows[:2]]
    (rate,) = neighbours(rates, "?", lambda row: row.configuration)
    assert (rate.predicted, rate.measured) == ("a", "b")


def test_how_many_gpus_give_enough():
    rows = [
        row_of(predicted, measured, configuration=f"{k} GPUs, batch 64")
        for k, predicted, measured in ((2, 0.95, 0.8), (4, 0.91, 0.95))
    ]
    decision = how_many(rows)
    assert decision.predicted == "4"
    assert decision.measured == "fewer than 2"


def test_the_smallest_batch_that_gives_enough():
    rows = [
        row_of(predicted, measured, unit="sequences/s", configuration=name)
        for name, predicted, measured in (
            ("batch 4", 91, 50), ("batch 8", 95, 89), ("batch 16", 100, 99)
        )
    ]  # fmt: skip
    decision = smallest(rows)
    assert (decision.predicted, decision.measured) == ("batch 4", "batch 16")


def test_a_ratio_is_more_than_one_or_not():
    decision = is_more(row_of(0.9, 1.1), "?")
    assert (decision.predicted, decision.measured) == ("no", "yes")


def test_joining_pays_if_a_quarter_is_saved():
    sizes = {2**16: (10, 10), 2**17: (14, 16), 2**20: (100, 100)}
    rows = [
        row_of(*times, configuration=f"{n:,} bytes")
        for n, times in sizes.items()
    ]
    (decision,) = joins(rows)
    assert (decision.predicted, decision.measured) == ("yes", "no")
