"""What each device of a layout has, and what it sends.

Two stages, one below the other, each with two replicas of two devices::

    stage 0    0 <-> 1
               |     |    the replicas add up their gradients
               2 <-> 3
                  |       activations go down, and their gradients up
    stage 1    4 <-> 5
               |     |
               6 <-> 7
"""

from collections.abc import Iterator

from dpbook.common.matrices import BOLD, GROUND, Panels, arrow, panel
from dpbook.common.shares import colour_of, draw_block, grid, level_arrow
from dpkit.sim.timeline.drawing import QUIET, box, quiet_text, text

WIDTH = 256.0
LEFTS = 12.0, 148.0  # of the two devices that stand side by side
DEVICE_WIDTH, DEVICE_HEIGHT = 96.0, 78.0
BETWEEN = 28.0  # pixels between two replicas
HEAD = 28.0  # of a stage, above its devices
STAGE_HEIGHT = HEAD + 2 * DEVICE_HEIGHT + BETWEEN + 10
STAGE_GAP = 46.0
MODEL, BATCH = 44.0, 28.0  # the widths of the two grids of a device
CELL = 8.0  # the height of a row of the grids
IN_WORDS = (
    "Devices 0 to 3 are stage 0 and have the first half of the layers, "
    "devices 4 to 7 are stage 1 and have the second half. Devices 0, 2, 4 "
    "and 6 have the left half of each of these layers, and the others the "
    "right half. Devices 0, 1, 4 and 5 have the upper half of the batch, and "
    "the others the lower half. Devices side by side send sums, devices "
    "above each other gradients, and the stages activations and their "
    "gradients."
)


def draw_layout() -> Panels:
    """Draw a layout of two replicas, tensor groups of two, and two stages."""
    parts: list[str] = []
    for stage in (0, 1):
        top = 2 + stage * (STAGE_HEIGHT + STAGE_GAP)
        parts.append(
            box(2, top, WIDTH - 4, STAGE_HEIGHT, fill=QUIET, more=GROUND)
        )
        parts.append(text(12, top + 18, f"stage {stage}", more=BOLD))
        parts += _stage(stage, top + HEAD)
    low = 2 + STAGE_HEIGHT
    middle = WIDTH / 2
    for x, ends in (middle - 7, "down"), (middle + 7, "up"):
        parts += arrow(x, low + 4, low + STAGE_GAP - 4, ends)
    at = low + STAGE_GAP / 2 + 4.5
    parts.append(text(middle - 18, at, "activations", anchor="end"))
    parts.append(text(middle + 18, at, "their gradients"))
    height = 4 + 2 * STAGE_HEIGHT + STAGE_GAP
    return Panels([panel(parts, WIDTH, height, IN_WORDS)], in_a_row=1)


def _stage(stage: int, top: float) -> Iterator[str]:
    second = top + DEVICE_HEIGHT + BETWEEN
    left = LEFTS[0] + DEVICE_WIDTH
    for replica, y in enumerate((top, second)):
        for member, x in enumerate(LEFTS):
            yield from _device(
                stage=stage, replica=replica, member=member, x=x, y=y
            )
        middle = y + DEVICE_HEIGHT / 2
        yield from level_arrow(left + 3, LEFTS[1] - 3, middle)
        yield text((left + LEFTS[1]) / 2, middle - 8, "sums", anchor="middle")
    for x in LEFTS:
        at = x + DEVICE_WIDTH / 2
        yield from arrow(at, second - BETWEEN + 3, second - 3, "both")
    at = second - BETWEEN / 2 + 4.5
    yield text(WIDTH / 2, at, "gradients", anchor="middle")


def _device(
    *, stage: int, replica: int, member: int, x: float, y: float
) -> Iterator[str]:
    # The tensor group is inside, then the replicas, then the stages.
    device = 4 * stage + 2 * replica + member
    colour = colour_of(stage)
    yield box(x, y, DEVICE_WIDTH, DEVICE_HEIGHT, fill=colour, more=GROUND)
    ink = f'{BOLD} fill="{colour}"'
    yield text(x + 8, y + 16, f"device {device}", more=ink)
    halves = "##..", "..##"
    model = [halves[member] if i // 2 == stage else "...." for i in range(4)]
    batch = ["#" if i // 2 == replica else "." for i in range(4)]
    grids = [
        ("model", model, x + 8, MODEL),
        ("batch", batch, x + DEVICE_WIDTH - 8 - BATCH, BATCH),
    ]
    for name, rows, at, width in grids:
        yield from draw_block(
            grid(rows, stage), at, y + 24, width=width, cell_height=CELL
        )
        below = at + width / 2, y + DEVICE_HEIGHT - 7
        yield quiet_text(*below, name, anchor="middle")
