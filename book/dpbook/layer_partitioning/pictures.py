"""Pictures of split layers: columns then rows, a loss, towers, and gains."""

from collections.abc import Collection, Mapping, Sequence

from matplotlib.axes import Axes

from dpbook.common.boxes import box, down
from dpbook.common.matrices import (
    Panels,
    arrow,
    band,
    band_height,
    heading,
    in_a_line,
    panel,
)
from dpbook.common.plots import COLOURS, Picture, doublings
from dpkit.sim.timeline import drawing
from dpkit.sim.timeline.drawing import INK

WIDTH = 500.0  # pixels, of two layers
BETWEEN = 44.0  # pixels between the bands of two devices
LOSS_WIDTH = 240.0  # pixels, of a last layer and its scores
TOWER = 3.0  # from one tower to the other, in units of the drawing


def draw_mlp() -> drawing.Drawing:
    """Draw two linear layers split over two devices, by columns, then by rows.

    They are those of the chapter: 5 features, 7 hidden ones and 4, for 3
    rows. Below each part stands its shape.
    """
    sizes = {"x": (3, 5), "W": (5, 7), "h": (3, 7), "V": (7, 4)}
    placed = in_a_line(sizes | {"y": (3, 4)}, 12.0, WIDTH)
    x, w, h, v, y = placed
    parts: list[str] = []
    top = 8.0
    for device, cut in enumerate([(0, 4), (4, 7)]):
        held = [
            (x, x.whole),
            (w, w.columns(*cut)),
            (h, h.columns(*cut)),
            (v, v.rows(*cut)),
            (y, y.whole),
        ]
        parts += band(device, top, WIDTH, held, with_shapes=True)
        top += band_height(held, with_shapes=True)
        if device == 0:
            parts += arrow(y.middle, top + 4, top + BETWEEN - 4, "both")
            label = "allreduce: the parts of y are summed"
            at = top + BETWEEN / 2 + 5
            parts.append(drawing.text(y.middle - 12, at, label, anchor="end"))
            top += BETWEEN
    title = "two layers split over 2 devices"
    return drawing.page(parts, top + 8, title, WIDTH)


def draw_loss_in_parts() -> Panels:
    """Draw a last layer cut by columns, and two ways to compute its loss."""
    return Panels(
        [
            _last_layer(
                "All scores are gathered",
                ["halves of the scores"],
                "They send each other their halves of z, and each has all.",
                gathered=True,
            ),
            _last_layer(
                "The loss in parts",
                ["maximum, sum and", "score of the right token"],
                "Each keeps its half of z. They send each other a maximum, a "
                "sum and the score of the right token for each position.",
                gathered=False,
            ),
        ],
        in_a_row=2,
    )


def _last_layer(
    title: str, sent: Sequence[str], description: str, gathered: bool
) -> drawing.Drawing:
    """Draw x W = z on two devices, W and z by columns."""
    sizes = {"x": (4, 2), "W": (2, 8), "z": (4, 8)}
    x, w, z = in_a_line(sizes, 9.0, LOSS_WIDTH)
    parts = [*heading(LOSS_WIDTH, title)]
    top = 26.0
    for device, cut in enumerate([(0, 4), (4, 8)]):
        scores = z.whole if gathered else z.columns(*cut)
        held = [(x, x.whole), (w, w.columns(*cut)), (z, scores)]
        parts += band(device, top, LOSS_WIDTH, held)
        top += band_height(held)
        if device == 0:
            parts += arrow(z.middle, top + 4, top + BETWEEN - 4, "both")
            at = top + BETWEEN / 2 + 13 - 8 * len(sent)
            for line in sent:
                parts.append(
                    drawing.text(z.middle - 12, at, line, anchor="end")
                )
                at += 16
            top += BETWEEN
    has = "Both devices have x, and each has half of the columns of W."
    return panel(parts, LOSS_WIDTH, top + 2, f"{title}. {has} {description}")


def draw_towers(layers: Sequence[str], talk: Collection[str]) -> Picture:
    """Draw a network of two towers, with a crossing where they talk."""

    def draw(ax: Axes) -> None:
        for i, name in enumerate(layers):
            for rank in (0, 1):
                box(ax, TOWER * rank, -i, name, colour=COLOURS[rank])
                for other in (0, 1) if name in talk else (rank,):
                    if i:
                        start = (TOWER * other, 1 - i)
                        down(ax, start, (TOWER * rank, -i))
        ax.set(xlim=(-0.9, TOWER + 0.9), ylim=(0.5 - len(layers), 0.5))
        ax.axis("off")

    title = f"two towers that talk in {', '.join(talk)}"
    return Picture(draw, title, (3.4, 0.6 * len(layers)))


def plot_gains(
    gains: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    predicted: Mapping[str, float],
    xlabel: str,
    ylabel: str,
) -> Picture:
    """Draw what splitting gains over a size, and where it should begin to.

    Args:
        gains: Name -> the sizes, and what splitting gains at each: the time of
            one device by that of several.
        predicted: Name -> the size from which it should be a gain.
        xlabel: What the axis shows, with the unit.
        ylabel: What the axis shows, with the unit.
    """

    def draw(ax: Axes) -> None:
        ax.axhline(1, color=INK, linewidth=1)
        for (name, (x, y)), colour in zip(gains.items(), COLOURS):
            ax.plot(x, y, "o-", color=colour, markersize=4, label=name)
            ax.axvline(predicted[name], color=colour, ls=":", lw=1.5)
        ax.set(xscale="log", xlabel=xlabel, ylabel=ylabel)
        doublings(ax.xaxis)
        ax.set_ylim(bottom=0)
        ax.legend(loc="lower right")

    return Picture(draw, f"{ylabel} by {xlabel}: {', '.join(gains)}")
