"""torchgpipe's pipelines: formula, replay and published measurement.

It trained AmoebaNet-D on Tesla P40s: n stages, each batch in m micro-batches.
Forward passes are as in GPipe, backward passes run from the last micro-batch
to the first. Before each of them but the last micro-batch's, a forward pass is
made again (R). A device does so while it waits for the gradient. A single
micro-batch makes its forward pass again too::

    device 0 | F0 F1 F2 .. .. B2 R1 B1 R0 B0       two stages,
    device 1 | .. F0 F1 F2 B2 R1 B1 R0 B0 ..       three micro-batches
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from dpkit.network_partition import LayerCost
from dpkit.schedules import FORWARD, Action, Schedule, gpipe
from dpkit.schedules.check import steps
from dpkit.sim.hardware import LINKS, Link, copy_seconds
from dpkit.tables import Table, table


@dataclass(frozen=True)
class Run:
    """A published measurement."""

    num_stages: int  # n, each on a device of its own
    num_micro_batches: int  # m
    batch: int  # examples
    balance: Sequence[int]  # the number of layers in each stage
    samples_per_second: float

    @property
    def micro_batch(self) -> int:
        """The examples in a micro-batch."""
        return self.batch // self.num_micro_batches

    @property
    def formula(self) -> float:
        """The speed-up of n equal stages that recompute and send nothing."""
        n = self.num_stages
        m = self.num_micro_batches
        return m * n / (m + n - 1)


@dataclass(frozen=True)
class Assumptions:
    """The assumptions of a replay; by default, what was published."""

    link: Link | None = LINKS["pcie3"]  # if None, sending takes no time
    recompute: bool = True  # whether forward passes are made again
    equal_stages: bool = False  # whether each takes as much of the whole time


PUBLISHED = Assumptions()
# From the formula to the replay, one thing after another.
LADDER = {
    "layers' seconds, equal stages": Assumptions(
        link=None, recompute=False, equal_stages=True
    ),
    "published balance": Assumptions(link=None, recompute=False),
    "recomputation": Assumptions(None),
    "hops": PUBLISHED,
}


@dataclass(frozen=True)
class Row:
    """A run, and its speed-ups over the first run of the table."""

    run: Run
    formula: float
    replayed: float
    measured: float
    samples_per_second: float  # what the replay says of the speed itself

    @property
    def miss(self) -> float:
        """(replayed − measured) / measured."""
        return self.replayed / self.measured - 1


def step_seconds(
    run: Run, costs: Sequence[LayerCost], assumptions: Assumptions = PUBLISHED
) -> float:
    """Replay a step as torchgpipe runs it; the optimizer's is left out.

    Args:
        run: The published run: stages, micro-batches and batch.
        costs: Those of each layer, for a micro-batch of this run, in seconds
            and bytes.
        assumptions: What is taken for granted.

    Example:
        Two layers of one second forward and two backward, on two devices:

        >>> run = Run(2, 3, 30, [1, 1], samples_per_second=0)
        >>> costs = [LayerCost(1, 2, num_bytes=0)] * 2
        >>> step_seconds(run, costs, Assumptions(link=None))
        14.0

    Source:
        kakaobrain/torchgpipe, torchgpipe/pipeline.py and checkpoint.py.
    """
    m = run.num_micro_batches
    link = assumptions.link
    stages = _stages(run, costs, assumptions.equal_stages)

    def seconds(action: Action) -> float:
        stage = stages[action.stage]
        forward = action.kind == FORWARD
        return stage.forward_seconds if forward else stage.backward_seconds

    def ahead(action: Action) -> float:
        kept = action.micro_batch == m - 1 > 0
        if action.kind == FORWARD or kept or not assumptions.recompute:
            return 0.0
        return stages[action.stage].forward_seconds

    def hop(stage: int) -> float:
        return copy_seconds(link, stages[stage].num_bytes) if link else 0.0

    schedule = reversed_gpipe(run.num_stages, m)
    return replayed_seconds(
        schedule, seconds=seconds, hop_seconds=hop, ahead_seconds=ahead
    )


def reversed_gpipe(num_stages: int, num_micro_batches: int) -> Schedule:
    """Return GPipe's schedule, with its backward passes in reverse."""
    # device 0 of 2, m = 3: 0F0 0F1 0F2 0B2 0B1 0B0
    m = num_micro_batches
    return [row[:m] + row[m:][::-1] for row in gpipe(num_stages, m)]


def replayed_seconds(
    schedule: Schedule,
    *,
    seconds: Callable[[Action], float],
    hop_seconds: Callable[[int], float],
    ahead_seconds: Callable[[Action], float],
) -> float:
    """Replay a schedule with hops that differ, and work done ahead.

    Args:
        schedule: The actions of each device, in order.
        seconds: Action -> its seconds.
        hop_seconds: Stage s -> the seconds of a message from s to s + 1, or
            back.
        ahead_seconds: Action -> the seconds of what its device does before it,
            without waiting for other devices.

    Returns:
        The seconds until the last device is done.
    """
    free = [0.0] * len(schedule)
    ends: dict[tuple[int, str, int], float] = {}
    for device, action, needed in steps(schedule):
        start = free[device] + ahead_seconds(action)
        for other in needed:
            arrival = ends[other]
            if other[0] != action.stage:
                arrival += hop_seconds(min(other[0], action.stage))
            start = max(start, arrival)
        free[device] = ends[action] = start + seconds(action)
    return max(free)


def _stages(
    run: Run, costs: Sequence[LayerCost], equal: bool
) -> list[LayerCost]:
    """Return the costs of stages, which pass on what their last layer does."""
    assert sum(run.balance) == len(costs)
    stages = []
    # A balance of 2 and 3 layers: costs[0:2] and costs[2:5].
    for end, length in zip(accumulate(run.balance), run.balance):
        layers = costs if equal else costs[end - length : end]
        share = 1 / run.num_stages if equal else 1
        forward, backward, _ = map(sum, zip(*layers))
        last = costs[end - 1].num_bytes
        stages.append(LayerCost(share * forward, share * backward, last))
    return stages


def layer_costs(columns: Mapping[str, Sequence[Any]]) -> list[LayerCost]:
    """Return the costs of layers that a record holds as columns."""
    rows = zip(*(columns[name] for name in LayerCost._fields), strict=True)
    return [LayerCost(*row) for row in rows]


def amoebanet_table(
    published: Mapping[str, Any],
    simulated: Mapping[str, Any],
    assumptions: Assumptions = PUBLISHED,
) -> list[Row]:
    """Return the speed-ups of AmoebaNet-D: by formula, replayed, measured.

    ``published`` is book/_data/torchgpipe_amoebanet.json, and ``simulated``
    amoebanet_p40.json.
    """
    costs = {
        int(size): layer_costs(columns)
        for size, columns in simulated["micro_batches"].items()
    }
    runs = [Run(**run) for run in published["runs"]]
    speeds = [
        run.batch / step_seconds(run, costs[run.micro_batch], assumptions)
        for run in runs
    ]
    first = runs[0]
    return [
        Row(
            run=run,
            formula=run.formula / first.formula,
            replayed=speed / speeds[0],
            measured=run.samples_per_second / first.samples_per_second,
            samples_per_second=speed,
        )
        for run, speed in zip(runs, speeds)
    ]


def show_table(rows: Iterable[Row]) -> Table:
    """Return a table of the speed-ups and how far off the replay is."""
    return table(
        [
            {
                "p": row.run.num_stages,
                "m": row.run.num_micro_batches,
                "batch": row.run.batch,
                "balance": "-".join(map(str, row.run.balance)),
                "formula": f"{row.formula:.2f}",
                "replayed": f"{row.replayed:.2f}",
                "measured": f"{row.measured:.2f}",
                "error": f"{row.miss:+z.0%}",
            }
            for row in rows
        ]
    )


def show_ladder(
    published: Mapping[str, Any], simulated: Mapping[str, Any]
) -> Table:
    """Return a table of how far off each step from formula to replay is.

    A column is a run, n and m, without the first, to which all are compared;
    the last column is the mean of the absolute values.
    """
    steps = {
        name: amoebanet_table(published, simulated, assumptions)
        for name, assumptions in LADDER.items()
    }
    rows = steps["hops"]
    misses = {"formula": [row.formula / row.measured - 1 for row in rows]}
    misses |= {name: [r.miss for r in rows] for name, rows in steps.items()}
    names = [f"{r.run.num_stages}, {r.run.num_micro_batches}" for r in rows]
    lines = []
    for name, values in misses.items():
        pairs = list(zip(names, values, strict=True))[1:]
        of_runs = {run: f"{value:+z.0%}" for run, value in pairs}
        mean = sum(abs(value) for _, value in pairs) / len(pairs)
        lines.append({"p, m": name} | of_runs | {"mean": f"{mean:.0%}"})
    return table(lines)
