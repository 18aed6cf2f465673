"""Puzzles: lists to put into order until a target is met.

Each begins with an order that works and is too slow. What does not work at
all is refused, and the word at fault is marked. The tests show that each
target can be met, and that no order does better.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

from dpbook.exercises.overlap import MEGABYTES, reduced
from dpbook.explore.figure import Lists, LiveFigure, SettingError, Shown
from dpkit.plans import (
    Message,
    Plan,
    Rates,
    check_broadcast,
    ideal_cluster,
    replay_plan,
)
from dpkit.schedules import Action, most_in_flight, parse
from dpkit.schedules.check import check
from dpkit.schedules.replay import replay
from dpkit.sim.clock import Span
from dpkit.sim.timeline import Timeline

DEVICES = 3
MICRO_BATCHES = 4
FORWARD = 1  # ms of a micro-batch on a stage
BACKWARD = 2


def _lines(text: str) -> list[list[str]]:
    return [line.split() for line in text.split("\n")]


def _verdict(met: bool, found: str, target: str) -> str:
    return f"Solved: {found}." if met else f"Not yet: {found}; {target}."


def _marked(run: Callable[[], object], words: list[str], name: str) -> None:
    """Run, and say of an error which of the words it names first."""
    try:
        run()
    except ValueError as error:
        text = str(error).replace("(", " ").split()
        at_fault = next((word for word in text if word in words), name)
        raise SettingError(str(error), at_fault) from None


def show_order(order: str) -> Shown:
    """Replay the reader's schedule; 18 ms, keeping 3 micro-batches, solve it.

    Args:
        order: A line for each device with its actions as words, such as
            "0F0 0B0 0F1 0B1".

    Raises:
        SettingError: the schedule is refused by ``check``.
    """
    schedule = parse(order)
    _marked(
        lambda: check(schedule, DEVICES, MICRO_BATCHES), order.split(), "order"
    )

    def seconds(action: Action) -> float:
        return (FORWARD if action.kind == "F" else BACKWARD) / 1000

    timeline = replay(schedule, seconds, label="puzzle")
    ms = 1000 * timeline.makespan
    kept = max(map(most_in_flight, schedule))
    return Shown(
        [timeline.draw()],
        [("a step", f"{ms:.0f} ms"), ("micro-batches kept", f"{kept}")],
        _verdict(
            round(ms) <= 18 and kept <= 3,
            f"a step takes {ms:.0f} ms and a device keeps {kept}",
            "18 ms and 3 micro-batches at most are wanted",
        ),
    )


NAIVE = "\n".join(
    " ".join(f"{r}F{m} {r}B{m}" for m in range(MICRO_BATCHES))
    for r in range(DEVICES)
)
ORDER = LiveFigure(
    "order",
    "Puzzle: a pipeline in 18 ms",
    show_order,
    {
        "order": Lists(
            "device",
            NAIVE,
            "Wanted: a step of 18 ms, and 3 micro-batches kept at most. A "
            "stage stays on its device: only earlier and later help.",
        )
    },
)


GRADIENTS = [f"g{9 - i}:{mb}MB" for i, mb in enumerate(MEGABYTES)]


def _spans(counts: list[int]) -> list[Span]:
    """Return backward, a millisecond a gradient, and the buckets during it."""
    spans = [
        Span(
            device="device",
            stream="backward",
            name=word,
            kind="backward",
            start=i / 1000,
            end=(i + 1) / 1000,
        )
        for i, word in enumerate(GRADIENTS)
    ]
    before = 0.0
    for i in range(len(counts)):
        end = reduced(counts[: i + 1])[0] / 1000
        start = max(sum(counts[: i + 1]) / 1000, before)
        spans.append(
            Span(
                device="device",
                stream="link",
                name=f"{i}",
                kind="copy",
                start=start,
                end=end,
            )
        )
        before = end
    return spans


def show_buckets(buckets: str) -> Shown:
    """Show when the reader's buckets have been reduced; 10.9 ms solve it.

    Args:
        buckets: A line for each bucket, with its gradients as words of
            ``GRADIENTS``, such as "g9:8MB g8:8MB". Empty lines count as none.

    Raises:
        SettingError: the buckets do not keep the order in which backward
            makes the gradients.
    """
    # Within a bucket any order will do.
    lines = [sorted(x, key=GRADIENTS.index) for x in _lines(buckets) if x]
    given = [word for line in lines for word in line]
    for word, wanted in zip(given, GRADIENTS):
        if word != wanted:
            why = (
                f"{wanted} has to leave before {word}: backward makes it first"
            )
            raise SettingError(why, word)
    counts = [len(line) for line in lines]
    end, largest = reduced(counts)
    return Shown(
        [Timeline(_spans(counts), label="puzzle").draw()],
        [
            ("buckets", f"{len(counts)}"),
            ("the last one ends", f"{end:.1f} ms"),
            ("the largest", f"{largest} MB"),
        ],
        _verdict(
            end <= 10.9,
            f"all are reduced at {end:.1f} ms",
            "10.9 ms are wanted",
        ),
    )


BUCKETS = LiveFigure(
    "buckets",
    "Puzzle: ten gradients reduced at 10.9 ms",
    show_buckets,
    {
        "buckets": Lists(
            "bucket",
            " ".join(GRADIENTS) + 5 * "\n",
            "Wanted: all reduced at 10.9 ms. Backward makes g9 first and g0 "
            "last, and the buckets keep this order: move the last of a "
            "bucket down, or the first of one up.",
        )
    },
)


TREE = ("0→1", "0→2", "2→3", "0→4", "4→5", "4→6", "6→7")


def _message(word: str) -> Message:
    source, target = word.split("→")
    return Message(int(source), int(target), 0, 1)


def show_messages(steps: str) -> Shown:
    """Broadcast from rank 0 to seven others: in three steps."""
    lines = _lines(steps)
    plan = Plan("puzzle", 8, 1, [[*map(_message, line)] for line in lines])
    has = {0}
    for step, line in enumerate(lines):
        sources = [word[0] for word in line]
        for word in line:
            if int(word[0]) not in has:
                why = f"in step {step} rank {word[0]} has nothing to send"
                raise SettingError(why, word)
            if sources.count(word[0]) > 1:
                why = f"in step {step} rank {word[0]} sends twice"
                raise SettingError(why, word)
        has |= {int(word[-1]) for word in line}
    check_broadcast(plan)
    timeline = replay_plan(plan, 250, ideal_cluster(8, Rates(2e-6, 1e-9)))
    count = sum(map(bool, lines))
    return Shown(
        [timeline.draw()],
        [("steps", f"{count}"), ("messages", f"{len(TREE)}")],
        _verdict(count <= 3, f"it takes {count} steps", "3 are wanted"),
    )


MESSAGES = LiveFigure(
    "messages",
    "Puzzle: a broadcast in three steps",
    show_messages,
    {
        "steps": Lists(
            "step",
            "\n".join(TREE),
            "Wanted: three steps. A rank sends only what it has, and one "
            "message in a step.",
        )
    },
)


# Eight ranks on two nodes: a0 … d1. The two ranks of a letter exchange
# activations; those of a number exchange gradients in a ring a, b, c, d, a.
RANKS = [letter + digit for letter in "abcd" for digit in "01"]
EXCHANGES = [(x + "0", x + "1", 300) for x in "abcd"] + [
    (x + digit, y + digit, 80) for x, y in pairwise("abcda") for digit in "01"
]
# Megabytes in a millisecond, between nodes and inside one.
BETWEEN = 10
INSIDE = 100


def exchanged(node: Sequence[str]) -> tuple[int, int, int]:
    """Return the MB inside a node, inside the other one, and between them.

    Example:
        >>> exchanged(["a0", "b0", "c0", "d0"])
        (320, 320, 1200)
    """
    inside = in_other = between = 0
    for x, y, megabytes in EXCHANGES:
        if x in node and y in node:
            inside += megabytes
        elif x in node or y in node:
            between += megabytes
        else:
            in_other += megabytes
    return inside, in_other, between


def show_nodes(nodes: str) -> Shown:
    """Place eight ranks on two nodes: 320 MB between them."""
    lines = _lines(nodes)
    most = max(map(len, lines))
    first, second, between = exchanged(lines[0])
    rows = ("node 0", first, INSIDE), ("node 1", second, INSIDE)
    spans = [
        Span(
            device=row,
            stream="link",
            name=f"{mb} MB",
            kind="copy",
            start=0,
            end=mb / rate / 1000,
        )
        for row, mb, rate in (*rows, ("between", between, BETWEEN))
    ]
    return Shown(
        [Timeline(spans, label="puzzle").draw()],
        [
            ("inside the nodes", f"{first + second} MB"),
            ("between them", f"{between} MB"),
        ],
        _verdict(
            between <= 320 and most == 4,
            f"{between} MB pass between the nodes",
            "at most 320 are wanted"
            if most == 4
            else f"a node holds four ranks, and one now has {most}: move "
            "one to the other node",
        ),
    )


PLACEMENT = LiveFigure(
    "nodes",
    "Puzzle: eight ranks on two nodes",
    show_nodes,
    {
        "nodes": Lists(
            "node",
            "a0 b0 c0 d0\na1 b1 c1 d1",
            "Wanted: 320 MB between the nodes at most, with four ranks on "
            "each. To exchange two ranks, move one down and one up.",
        )
    },
)
