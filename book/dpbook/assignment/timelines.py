"""Timelines of a sheet, to be read: each has one action that is late."""

from collections.abc import Mapping
from functools import partial
from random import Random

from dpbook.assignment.asked import Asked
from dpbook.exercises.pipelines import CHART, check_read_chart
from dpbook.exercises.sharding import Read, check_read_backward
from dpkit.schedules import FORWARD, Action, most_in_flight, one_f_one_b, parse

Starts = Mapping[str, int]
WORDS = {3: "three", 4: "four"}


def starts_of(
    num_stages: int, num_micro_batches: int, late: str = ""
) -> dict[str, int]:
    """Return the tick in which each action of 1F1B starts.

    Each action takes a tick, and starts when its device is free and what it
    needs is done. The late one starts a tick later.

    Example:
        >>> starts_of(2, 1)
        {'0F0': 0, '1F0': 1, '1B0': 2, '0B0': 3}
        >>> starts_of(2, 1, late="1B0")["0B0"]
        4
    """
    rows = one_f_one_b(num_stages, num_micro_batches)
    starts: dict[str, int] = {}
    left = [list(row) for row in rows]
    free = [0] * num_stages
    while any(left):
        for r, row in enumerate(left):
            while row and (needs := needed_by(row[0], num_stages)) <= {
                *starts
            }:
                name = str(row.pop(0))
                ready = max([free[r], *(starts[n] + 1 for n in needs)])
                starts[name] = ready + (name == late)
                free[r] = starts[name] + 1
    return starts


def needed_by(action: Action, num_stages: int) -> set[str]:
    """Return the actions of which an action needs the results.

    Example:
        >>> sorted(needed_by(Action(1, "B", 4), num_stages=3))
        ['1F4', '2B4']
    """
    stage, kind, m = action
    if kind == FORWARD:
        return {f"{stage - 1}F{m}"} if stage else set()
    last = stage == num_stages - 1
    return {f"{stage}F{m}"} | (set() if last else {f"{stage + 1}B{m}"})


def drawn_chart(starts: Starts, num_stages: int) -> str:
    """Return a line for each device, with a dot where it is idle.

    Example:
        >>> print(drawn_chart(starts_of(2, 1), 2))
        0F0 .   .   0B0
        .   1F0 1B0 .
    """
    end = max(starts.values()) + 1
    rows = [["."] * end for _ in range(num_stages)]
    for name, tick in starts.items():
        rows[int(name[0])][tick] = name
    lines = ("".join(f"{name:4}" for name in row).rstrip() for row in rows)
    return "\n".join(lines)


def draw_read_chart(random: Random) -> Asked:
    """Draw a chart of 1F1B with an action that makes the step a tick later."""
    while True:
        p, m = random.choice((3, 4)), random.choice((5, 6))
        on_time = starts_of(p, m)
        late = random.choice(sorted(on_time))
        starts = starts_of(p, m, late)
        if late != "0F0" and max(starts.values()) == 1 + max(on_time.values()):
            break
    chart = drawn_chart(starts, p)
    cells = chart.split()
    share = cells.count(".") / len(cells)
    kept = most_in_flight(parse(chart)[0])
    return Asked(
        phrases={
            "on three devices": f"on {WORDS[p]} devices",
            CHART.strip("\n"): chart,
        },
        check=partial(check_read_chart, chart=chart, planted=late),
        keys=[(kept, share, late)],
    )


class Ticks:
    """The ticks of a backward pass of ZeRO-3 over four blocks.

    Block 3 is whole from forward. The gather of each other block starts with
    the work of the block above, and the late one when that work is done. The
    scatter of a block follows its work.
    """

    def __init__(
        self, work: int, *, gather: int, scatter: int, late: int | None = None
    ) -> None:
        self.rows: dict[str, dict[int, str]] = {
            name: {} for name in ("computes", "gathers", "scatters")
        }
        computed = gathered = scattered = begin = 0
        arrived = 0
        for b in (3, 2, 1, 0):
            begin = max(computed, arrived)
            computed = self._add("computes", f"B{b}", begin, work)
            if b:
                asked = computed if b - 1 == late else begin
                gathered = self._add(
                    "gathers", f"G{b - 1}", max(asked, gathered), gather
                )
                arrived = gathered
            start = max(computed, scattered)
            scattered = self._add("scatters", f"S{b}", start, scatter)
        self.end = scattered

    def _add(self, row: str, name: str, start: int, length: int) -> int:
        """Enter an action; return the tick in which it has ended."""
        self.rows[row] |= dict.fromkeys(range(start, start + length), name)
        return start + length

    def chart(self) -> str:
        """Return the three lines of the timeline."""
        return "\n".join(
            f"{name:10}"
            + " ".join(
                f"{row.get(t, '.'):2}" for t in range(self.end)
            ).rstrip()
            for name, row in self.rows.items()
        )

    def most_whole(self) -> int:
        """Return how many parameters and gradients are whole in one tick."""
        whole = [0] * self.end
        for b in range(4):
            works = self._ticks("computes", f"B{b}")
            scatters = self._ticks("scatters", f"S{b}")
            gathers = [0] if b == 3 else self._ticks("gathers", f"G{b}")
            for tick in range(gathers[0], works[-1] + 1):
                whole[tick] += 1
            for tick in range(works[0], scatters[-1] + 1):
                whole[tick] += 1
        return max(whole)

    def _ticks(self, row: str, name: str) -> list[int]:
        return sorted(t for t, n in self.rows[row].items() if n == name)


BOOK_BACKWARD = """\
computes  B3 B3 B2 B2 .  B1 B1 B0 B0 .  .  .  .  .  .  .  .  .
gathers   G2 .  .  .  G1 G0 .  .  .  .  .  .  .  .  .  .  .  .
scatters  .  .  S3 S3 S3 S3 S2 S2 S2 S2 S1 S1 S1 S1 S0 S0 S0 S0"""


def draw_read_backward(random: Random) -> Asked:
    """Draw a timeline of a sharded step, and which gather is late."""
    work = random.choice((2, 3))
    gather = random.randint(1, work)
    scatter = random.randint(1, 5)
    late = random.choice((0, 1, 2))
    ticks = Ticks(work, gather=gather, scatter=scatter, late=late)
    on_time = Ticks(work, gather=gather, scatter=scatter)
    right = Read(late, ticks.most_whole(), ticks.end - on_time.end)
    return Asked(
        phrases={
            "over a slow link, in ticks": "over a link, in ticks",
            BOOK_BACKWARD: ticks.chart(),
        },
        check=partial(check_read_backward, right=right),
        keys=[tuple(right)],
    )
