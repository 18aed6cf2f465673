"""The memory of a device as a picture: what is alive, in order of issue."""

from collections import defaultdict
from collections.abc import Sequence

from dpkit.sim.clock.record import Block, Record
from dpkit.sim.timeline import drawing
from dpkit.units import memory_unit, show_memory

CATEGORY_FILLS = {
    "parameters": drawing.BLUE,
    "gradients": "url(#gradients)",
    "optimizer state": drawing.GREEN,
    "activations": "url(#activations)",
    "other": drawing.QUIET,
}
# Pixels of the picture; its axes enclose a plot.
PLOT_LEFT = 66
PLOT_RIGHT = drawing.WIDTH - 14
PLOT_TOP = 102
PLOT_BOTTOM = 300
HEIGHT = 352
MOST_COLUMNS = 540


def draw_memory(record: Record, device: str) -> drawing.Drawing:
    """Draw what :meth:`Timeline.draw_memory` shows."""
    blocks = [block for block in record.blocks if block.device == device]
    if not blocks:
        none = drawing.text(14, 30, f"no memory of {device} in this timeline")
        return drawing.page([none], 48, f"memory of {device}: none")
    moments = thin(history(blocks), MOST_COLUMNS)
    totals = [sum(moment.values()) for moment in moments]
    peak = max(totals)
    top = max(peak, 1) * 1.08
    parts = [
        drawing.hatch("gradients", drawing.AMBER),
        drawing.hatch("activations", drawing.VIOLET, -45),
        *_head(device, record.label, peak),
        *drawing.legend(14, 48, [(c, _fill(c), "") for c in moments[0]]),
        *_axes(top),
        *_areas(moments, top),
        *_peak(totals, top),
    ]
    title = f"memory of {device}: peak {show_memory(peak)}"
    return drawing.page(parts, HEIGHT, title)


def history(blocks: Sequence[Block]) -> list[dict[str, int]]:
    """Return how much memory is alive, before all events and after each.

    Every entry of the list is category -> bytes, with all categories.
    """
    changes: defaultdict[int, list[tuple[str, int]]] = defaultdict(list)
    changes[-1] = []  # before all events
    for block in blocks:
        changes[block.allocated].append((block.category, block.num_bytes))
        if block.freed is not None:
            changes[block.freed].append((block.category, -block.num_bytes))
    # The categories from the bottom of the picture to its top.
    found = drawing.known_first(CATEGORY_FILLS, {b.category for b in blocks})
    alive = dict.fromkeys(found, 0)
    moments = []
    for event in sorted(changes):
        for category, num_bytes in changes[event]:
            alive[category] += num_bytes
        moments.append(dict(alive))
    return moments


def thin(
    moments: Sequence[dict[str, int]], at_most: int
) -> list[dict[str, int]]:
    """Keep the fullest of neighbouring moments, so that the peak stays."""
    # 1 9 2 3, at most 2: of 1 9 and of 2 3 the fullest, 9 3.
    each = -(-len(moments) // at_most)
    groups = [moments[i : i + each] for i in range(0, len(moments), each)]
    return [max(group, key=lambda m: sum(m.values())) for group in groups]


def _fill(category: str) -> str:
    return CATEGORY_FILLS.get(category, drawing.INK)


def _head(device: str, label: str, peak: int) -> list[str]:
    name = drawing.cut(f"memory of {device}", 30)
    return [
        drawing.bold_text(14, 22, name),
        drawing.quiet_text(
            PLOT_RIGHT, 22, f"peak {show_memory(peak)}", anchor="end"
        ),
        drawing.quiet_text(
            PLOT_RIGHT, HEIGHT - 8, drawing.cut(label, 44), anchor="end"
        ),
    ]


def _axes(top: float) -> list[str]:
    unit, name = memory_unit(int(top))
    parts = [
        drawing.quiet_text(PLOT_LEFT - 6, PLOT_TOP - 8, name, anchor="end")
    ]
    for y, label in drawing.ticks(
        0, top / unit, PLOT_BOTTOM, PLOT_TOP, at_most=4
    ):
        parts.append(
            drawing.line(PLOT_LEFT, y, PLOT_RIGHT, y, colour=drawing.GRID)
        )
        parts.append(
            drawing.quiet_text(PLOT_LEFT - 6, y + 4.5, label, anchor="end")
        )
    label = "allocations and releases, in order"
    middle = (PLOT_LEFT + PLOT_RIGHT) / 2
    return [
        *parts,
        drawing.quiet_text(middle, PLOT_BOTTOM + 19, label, anchor="middle"),
    ]


def _x(column: int, count: int) -> float:
    return PLOT_LEFT + (PLOT_RIGHT - PLOT_LEFT) * column / count


def _y(num_bytes: float, top: float) -> float:
    return PLOT_BOTTOM - (PLOT_BOTTOM - PLOT_TOP) * num_bytes / top


def _areas(moments: Sequence[dict[str, int]], top: float) -> list[str]:
    """Draw the categories on top of each other, each as steps."""
    parts = []
    floor = [0] * len(moments)
    for category in moments[0]:
        roof = [f + m[category] for f, m in zip(floor, moments, strict=True)]
        most = max(m[category] for m in moments)
        title = drawing.escape(f"{category}: at most {show_memory(most)}")
        parts.append(
            f'<path d="{_steps(floor, roof, top)}" fill="{_fill(category)}">'
            f"<title>{title}</title></path>"
        )
        floor = roof
    return parts


def _steps(floor: list[int], roof: list[int], top: float) -> str:
    """Return the outline of an area: along its roof, back on its floor."""
    count = len(roof)
    there = [(i, i + 1, roof[i]) for i in range(count)]
    back = [(i + 1, i, floor[i]) for i in reversed(range(count))]
    path = []
    for start, end, num_bytes in there + back:
        x1, x2 = (drawing.number(_x(i, count)) for i in (start, end))
        path.append(f"{x1} {drawing.number(_y(num_bytes, top))}H{x2}")
    return "M" + "L".join(path) + "Z"


def _peak(totals: Sequence[int], top: float) -> list[str]:
    """Mark the fullest moment, by its size."""
    column = totals.index(max(totals))
    x = (_x(column, len(totals)) + _x(column + 1, len(totals))) / 2
    y = _y(totals[column], top)
    dashed = ' stroke-dasharray="2 3"'
    return [
        drawing.line(
            PLOT_LEFT, y, PLOT_RIGHT, y, colour=drawing.INK, more=dashed
        ),
        f'<circle cx="{drawing.number(x)}" cy="{drawing.number(y)}" r="4" '
        f'fill="#ffffff" stroke="{drawing.INK}" stroke-width="2"/>',
    ]
