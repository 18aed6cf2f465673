"""Own script: the checks tell wrong from right; what the page runs."""

import json

import pytest

from dpbook.common.checks import failure
from dpbook.own_script.running import SCRIPT, edited, lines, sections
from dpbook.own_script.tables import (
    eager_error,
    memory_beside_tracker,
    mistakes_table,
    planted_counts,
    public_counts,
    public_table,
    what_was_said,
)


def largest(batches, peaks, room):
    slope = (peaks[1] - peaks[0]) / (batches[1] - batches[0])
    fixed = peaks[0] - slope * batches[0]
    return max(0, int((room - fixed) // slope))


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (largest, None),
        (lambda batches, peaks, room: None, "it returned None"),
    ],
)
def test_most_examples(answer, why):
    answer.__name__ = "most_examples"
    found = failure(answer)
    assert found is None if why is None else why in found


def latest(arrivals):
    waited = [0.0] * len(arrivals[0])
    for times in arrivals:
        last = times.index(max(times))
        waited[last] += sum(max(times) - t for t in times)
    worst = waited.index(max(waited))
    return worst, waited[worst]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (latest, None),
        (lambda arrivals: None, "it returned None"),
    ],
)
def test_latest_rank(answer, why):
    answer.__name__ = "latest_rank"
    found = failure(answer)
    assert found is None if why is None else why in found


def test_lines_that_are_not_there_cannot_be_replaced():
    assert edited(("optimizer.step()", "pass")) != SCRIPT
    with pytest.raises(ValueError, match="no 'optimiser"):
        edited(("optimiser.step()", "pass"))


def test_what_is_shown_of_a_report():
    printed = "epoch 0\n\nA step\n  1 ms\n\nFound\n  this\n\nNotes\n  that\n"
    assert sections(printed, "A step", "Notes") == (
        "A step\n  1 ms\n\nNotes\n  that"
    )
    assert lines("rank 0\nloss\nheld 3\n", "rank", "held") == "rank 0\nheld 3"


def test_what_is_said_of_planted_mistakes(tmp_path):
    path = tmp_path / "planted.json"
    ends = [
        ("the script is right", "no alarm"),
        ("the script is right", "an alarm"),
        ("a", "found by check"),
        ("b", "found by torchrun and check"),
        ("c", "shown without its cause"),
        ("d", "missed"),
    ]
    rows = [
        {
            "name": f"nanogpt.{mistake}",
            "script": "nanogpt",
            "mistake": mistake,
            "end": end,
            "torchrun": [],
            "check": ["it differs"] if mistake == "a" else [],
        }
        for mistake, end in ends
    ]
    path.write_text(json.dumps({"planted": rows}))
    (_, *said) = str(mistakes_table(path)).splitlines()
    assert [line.split()[:3] for line in said] == [
        ["a", "check", "-"],
        ["b", "both", "-"],
        ["c", "shown", "-"],
        ["d", "missed", "-"],
    ]
    assert planted_counts(path) == (
        "4 mistakes: 2 found, 1 shown, 1 missed\n"
        "2 right scripts: 1 raised an alarm"
    )
    assert what_was_said(path, "nanogpt.a") == "nanogpt.a: a\nit differs"
    assert what_was_said(path, "nanogpt.d") == "nanogpt.d: d\nno alarm"


def test_memory_stands_beside_what_pytorch_counts(tmp_path):
    path = tmp_path / "llama.json"
    record = {"simulated": [1, 19_071_608_072], "tracked": [2, 19_138_718_100]}
    path.write_text(json.dumps(record))
    (_, ours, theirs) = str(memory_beside_tracker(path)).splitlines()
    assert ours.split()[-2:] == ["19.07", "GB"]
    assert theirs.split()[-2:] == ["19.14", "GB"]


def test_scripts_of_others_stand_beside_real_processes_and_one_rank(tmp_path):
    path = tmp_path / "public.json"
    row = {"repository": "a/b", "script": "c.py", "ranks": 2, "ran": True}
    row |= {"cpu_seconds": 3.0}
    compared = {"difference": 0.0, "cpu_seconds": 4.0}
    beside = row | {"compared": compared, "check": {"said": []}}
    alarm = row | {"check": {"said": ["it differs"]}}
    path.write_text(json.dumps({"scripts": [row, beside, alarm]}))
    _, *lines = str(public_table(path)).splitlines()
    assert [line.split()[3:] for line in lines] == [
        ["yes", "-", "-", "-"],
        ["yes", "equal", "no", "75%"],
        ["yes", "-", "yes", "-"],
    ]
    assert public_counts(path) == (
        "3 of 3 ran\n"
        "1 of 1 that were compared are equal\n"
        "1 of 2 that were checked raised an alarm"
    )


def test_the_mean_factor_is_of_eager_runs_alone(tmp_path):
    path = tmp_path / "forecasts.json"
    runs = [
        {"ratio": ratio, "published": {"compiled": compiled}}
        for ratio, compiled in ((0.5, False), (0.125, False), (0.01, True))
    ]
    path.write_text(json.dumps({"runs": runs}))
    assert eager_error(path) == (
        "2 of 2 too short, by a mean factor of 4.00, at most 8.0"
    )
