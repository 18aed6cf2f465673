"""Where tokens go, and what book/_data/experts.json says of the trainings.

The record is what ``scripts/recorders/experts.py`` wrote to that file.
"""

from collections.abc import Mapping, Sequence
from statistics import mean, stdev
from typing import Any

from matplotlib.axes import Axes

from dpbook.common.plots import COLOURS, Picture
from dpbook.experts.training import NUM_EXPERTS
from dpkit.experts import Routing
from dpkit.sim.timeline.drawing import QUIET
from dpkit.tables import Table, table

Record = Mapping[str, Any]


def tokens_by_expert(routing: Routing) -> list[list[int]]:
    """Return the tokens of each expert, in the order in which it gets them."""
    parts = routing.token.split(routing.counts.tolist())
    return [part.tolist() for part in parts]


def routing_table(routing: Routing) -> Table:
    """Return a line for each expert: its tokens, and their weights."""
    weights = routing.weight.split(routing.counts.tolist())
    return table(
        [
            {
                "expert": expert,
                "its tokens": ", ".join(map(str, tokens)),
                "their weights": ", ".join(f"{w:.2f}" for w in weight),
            }
            for expert, (tokens, weight) in enumerate(
                zip(tokens_by_expert(routing), weights, strict=True)
            )
        ]
    )


def runs_by_remedy(record: Record) -> dict[str, list[Mapping[str, Any]]]:
    """Return the runs of all seeds, by the remedy."""
    return {
        name: [run for run in record["runs"] if run["remedy"] == name]
        for name in record["remedies"]
    }


def percent(values: Sequence[float]) -> str:
    """Return mean and standard deviation of shares, in percent."""
    return f"{100 * mean(values):.1f} ± {100 * stdev(values):.1f}"


def plot_balance(record: Record) -> Picture:
    """Draw the busiest expert's share by epoch: means and deviations."""

    def draw(ax: Axes) -> None:
        for i, (name, runs) in enumerate(runs_by_remedy(record).items()):
            by_epoch = list(zip(*[run["busiest"] for run in runs]))
            # Next to each other, so that bars do not hide bars.
            epochs = [1 + e + 0.05 * i for e in range(len(by_epoch))]
            means = [100 * mean(shares) for shares in by_epoch]
            deviations = [100 * stdev(shares) for shares in by_epoch]
            ax.errorbar(
                epochs, means, deviations, color=COLOURS[i], capsize=3,
                marker="osD^"[i], markersize=4, label=name,
            )  # fmt: skip
        ax.axhline(100 / NUM_EXPERTS, color=QUIET, linewidth=0.8)
        ax.set(xlabel="epoch", ylabel="share of the busiest expert, %")
        ax.set_ylim(0, 135)  # the legend stands above all bars
        ax.set_yticks(range(0, 101, 25))
        ax.legend(loc="upper center", ncol=2)

    names = ", ".join(record["remedies"])
    return Picture(draw, f"share of the busiest expert by epoch: {names}")
