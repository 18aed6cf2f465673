"""Pictures of the experiment on large batches."""

from collections.abc import Mapping, Sequence
from statistics import mean, stdev

from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.ticker import NullFormatter, NullLocator

from dpbook.common.lanes import Arrow, device, draw_lanes
from dpbook.common.matrices import Panels
from dpbook.common.plots import COLOURS, Picture
from dpbook.large_batches.results import RULES
from dpbook.large_batches.runs import RECIPE, WARMUPS, schedule
from dpkit.sim.timeline.drawing import INK, QUIET

ERRORS = (15, 20, 30, 50, 90)  # percent, the ticks of a logarithmic axis
GUESSING = 90
SHADES = LinearSegmentedColormap.from_list("error", ["#ffffff", "#f2a65a"])


def plot_schedules(k: int) -> Picture:
    """Draw the learning rates of a run with a batch of k·b, by the epoch."""
    per_epoch = RECIPE.steps_per_epoch(k)
    steps = range(RECIPE.num_epochs * per_epoch)

    def draw(ax: Axes) -> None:
        # They lie on one line once warm: later ones are thinner, so all show.
        for name, width in zip(WARMUPS, (5.0, 3.0, 1.2)):
            rate = schedule(k, lr=k * RECIPE.lr, warmup=name)
            epochs = [step / per_epoch for step in steps]
            rates = [rate(step) / RECIPE.lr for step in steps]
            label = f"warm-up: {name}"
            ax.step(epochs, rates, where="post", lw=width, label=label)
        ax.set(xlabel="epoch", ylabel="learning rate / η", ylim=(0, None))
        ax.legend(loc="lower center")

    return Picture(draw, f"learning rates by epoch: {', '.join(WARMUPS)}")


def plot_errors(ways: Mapping[str, Mapping[int, Sequence[float]]]) -> Picture:
    """Draw test error against the batch: each run, means and deviations.

    Both axes are logarithmic. A bar is one standard deviation of the runs to
    each side of their mean. ``ways``: way -> k -> percent of error, for each
    seed.
    """

    def draw(ax: Axes) -> None:
        for number, (way, by_k) in enumerate(ways.items()):
            i = list(RULES).index(way)
            # Next to each other, so that bars do not hide bars.
            shift = 2 ** (0.12 * (number - (len(ways) - 1) / 2))
            xs = [shift * k for k in by_k]
            for x, errors in zip(xs, by_k.values()):
                dots = [x] * len(errors)
                ax.plot(dots, errors, ".", color=COLOURS[i], alpha=0.35)
            means = [mean(errors) for errors in by_k.values()]
            deviations = [stdev(errors) for errors in by_k.values()]
            style = ("-", "--", ":", "-.")[i]
            ax.errorbar(
                xs, means, deviations, color=COLOURS[i], linestyle=style,
                marker="osD^"[i], markersize=4, capsize=3, label=way,
            )  # fmt: skip
        _error_axis(ax, list(next(iter(ways.values()))))
        # Below the line of guessing.
        ax.legend(loc="upper left", bbox_to_anchor=(0, 0.93))

    return Picture(draw, f"test error by batch: {', '.join(ways)}", (5.2, 4.2))


def _error_axis(ax: Axes, ks: Sequence[int]) -> None:
    """Label a logarithmic axis of batches, and one of errors."""
    ax.axhline(GUESSING, color=QUIET, linewidth=0.8)
    ax.set(xscale="log", yscale="log", ylim=(13, 100))
    ax.set(xlabel="batch k·b", ylabel="test error, %")
    ax.set_xticks(ks, [str(k * RECIPE.batch_size) for k in ks])
    ax.set_yticks(ERRORS, [str(error) for error in ERRORS])
    ax.xaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_minor_formatter(NullFormatter())


def plot_rates(errors: Mapping[int, Mapping[float, float]]) -> Picture:
    """Draw a table of mean test errors, a column for each batch.

    The least error of a column is bold, and a dot marks the rate k·η.
    """
    ks = list(errors)
    rates = sorted(next(iter(errors.values())))
    table = [[errors[k][lr] for k in ks] for lr in rates]

    def draw(ax: Axes) -> None:
        ax.imshow(
            table, SHADES, norm="log", vmin=14, vmax=GUESSING, origin="lower"
        )
        for column, k in enumerate(ks):
            best = min(rates, key=lambda lr: errors[k][lr])
            for row, lr in enumerate(rates):
                text = f"{errors[k][lr]:.1f}"
                weight = "bold" if lr == best else "normal"
                ax.text(
                    column, row, text,
                    ha="center", va="center", color=INK, weight=weight,
                )  # fmt: skip
                if lr == k * RECIPE.lr:
                    ax.plot(column + 0.37, row + 0.3, "o", color=INK, ms=4)
        ax.set_xticks(range(len(ks)), [str(k * RECIPE.batch_size) for k in ks])
        ax.set_yticks(range(len(rates)), [f"{lr:g}" for lr in rates])
        ax.set(xlabel="batch k·b", ylabel="learning rate", aspect="auto")
        ax.grid(visible=False)

    title = "mean test error by batch and learning rate"
    return Picture(draw, title, (5.2, 4.2))


def draw_one_large_step(k: int = 4) -> Panels:
    """Draw k steps of one device, and one step of k devices.

    Both take the same images.
    """
    size = RECIPE.batch_size
    parts = [f"images\n{i * size}–{(i + 1) * size - 1}" for i in range(k)]
    steps = [f"{part}\nstep {i + 1}" for i, part in enumerate(parts)]
    alone = draw_lanes(
        "One device",
        [device(0, *steps)],
        description=f"It takes {k} steps with {size} images each.",
        cut=f"{k} steps with {size} images",
        width=300,
    )
    together = draw_lanes(
        f"{k} devices",
        [
            device(rank, part, "gradient", "step 1")
            for rank, part in enumerate(parts)
        ],
        [
            Arrow((rank, 1), (rank + 1, 1), "summed", both=True)
            for rank in range(k - 1)
        ],
        description=f"Each has {size} of the images. They sum their "
        f"gradients, and take one step with all {k * size}.",
        cut=f"one step with {k * size} images",
        width=300,
    )
    return Panels([alone, together], in_a_row=2, width=20)
