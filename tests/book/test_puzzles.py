"""Each puzzle's target can be met, and nothing does better."""

import random
from itertools import combinations, product

import pytest

from dpbook.exercises.overlap import MEGABYTES, reduced
from dpbook.explore import puzzles
from dpbook.explore.puzzles import (
    BACKWARD,
    BUCKETS,
    DEVICES,
    FORWARD,
    GRADIENTS,
    MESSAGES,
    MICRO_BATCHES,
    ORDER,
    PLACEMENT,
    RANKS,
    TREE,
)
from dpkit.schedules.named import gpipe, one_f_one_b


def as_text(schedule):
    return "\n".join(" ".join(map(str, row)) for row in schedule)


SOLUTIONS = [
    (ORDER, as_text(one_f_one_b(DEVICES, MICRO_BATCHES))),
    (BUCKETS, "\n".join([
        "g9:8MB", "g8:8MB", "g7:4MB g6:4MB g5:4MB",
        "g4:2MB g3:2MB g2:2MB", "g1:1MB g0:1MB", "",
    ])),
    (MESSAGES, "0→4\n0→2 4→6\n0→1 2→3 4→5 6→7\n\n\n\n"),
    (PLACEMENT, "a0 a1 b0 b1\nc0 c1 d0 d1"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("figure", "solution"), SOLUTIONS, ids=lambda x: getattr(x, "name", "")
)
def test_a_target_is_missed_at_the_start_and_can_be_met(figure, solution):
    (name,) = figure.controls
    assert figure.ask().sentence.startswith("Not yet: ")
    found = figure.ask(**{name: solution})
    assert found.refused == ""
    assert found.sentence.startswith("Solved: ")
    assert len(found.pictures) == 1


@pytest.mark.parametrize(
    ("figure", "lines", "why", "place"),
    [
        (ORDER, "0B0 0F0 0F1 0B1 0F2 0B2 0F3 0B3\n"
         + ORDER.start["order"].split("\n", 1)[1], "0B0", "0B0"),
        (ORDER, "1F0 " + ORDER.start["order"].replace("1F0 ", ""),
         "on two devices", "order"),
        (BUCKETS, "\n".join([GRADIENTS[1], GRADIENTS[0], *GRADIENTS[2:]]),
         "g9:8MB has to leave before g8:8MB", "g8:8MB"),
        (MESSAGES, "0→1\n6→7\n0→2\n2→3\n0→4\n4→5\n4→6",
         "rank 6 has nothing to send", "6→7"),
        (MESSAGES, "0→1 0→2\n\n2→3\n0→4\n4→5\n4→6\n6→7",
         "rank 0 sends twice", "0→1"),
    ],
)  # fmt: skip
def test_what_does_not_work_is_refused(figure, lines, why, place):
    (name,) = figure.controls
    found = figure.ask(**{name: lines})
    assert why in found.refused
    assert found.place == place


def test_gpipe_is_fast_and_keeps_too_much():
    found = ORDER.ask(order=as_text(gpipe(DEVICES, MICRO_BATCHES)))
    assert found.sentence == (
        "Not yet: a step takes 18 ms and a device keeps 4; "
        "18 ms and 3 micro-batches at most are wanted."
    )


def test_six_ranks_on_a_node_are_no_solution():
    """Between the nodes passes no more than is wanted; but four fit on one."""
    found = PLACEMENT.ask(nodes="a0 a1 b0 b1 c0 c1\nd0 d1")
    assert ("between them", "320 MB") in found.facts
    assert "one now has 6: move one to the other node" in found.sentence
    assert found.sentence.startswith("Not yet: ")


def test_no_pipeline_takes_less():
    """The last device waits for p - 1 forwards, and p - 1 backwards follow."""
    work = MICRO_BATCHES * (FORWARD + BACKWARD)
    least = (DEVICES - 1) * (FORWARD + BACKWARD) + work
    assert least == 18
    chance, rows = random.Random(0), ORDER.start["order"].split("\n")
    tried = 0
    for _ in range(3000):
        lines = [row.split() for row in rows]
        for line in lines:
            for _ in range(chance.randrange(9)):
                i = chance.randrange(len(line))
                line.insert(chance.randrange(i + 1), line.pop(i))
        found = ORDER.ask(order="\n".join(map(" ".join, lines)))
        if not found.refused:
            tried += 1
            assert int(dict(found.facts)["a step"].split()[0]) >= least
    assert tried > 20


def test_no_buckets_end_earlier():
    """All 512 ways to cut ten gradients."""
    ends = []
    for borders in product((0, 1), repeat=len(MEGABYTES) - 1):
        counts = [1]
        for border in borders:
            if border:
                counts.append(1)
            else:
                counts[-1] += 1
        ends.append(reduced(counts)[0])
    assert min(ends) == 10.9
    assert len(ends) == 512


def test_no_broadcast_takes_fewer_steps():
    """A rank can send only after it has received: three in a chain."""
    steps = {"0": 0}
    while len(steps) < 8:
        for source, target in (word.split("→") for word in TREE):
            if source in steps:
                steps[target] = steps[source] + 1
    assert max(steps.values()) == 3


def test_no_layout_sends_less_between_nodes():
    """All 70 ways to put four ranks on a node."""
    found = [puzzles.exchanged(node)[2] for node in combinations(RANKS, 4)]
    assert len(found) == 70
    assert min(found) == 320
