"""Plans as pictures, step by step.

Each rank is a group of boxes, one for each chunk of its buffer. A box fills
up with the share of the ranks that are added up in it; a full box is green.
"""

from collections.abc import Iterator
from typing import NamedTuple

from dpkit.plans import Message, Plan
from dpkit.plans.check import follow
from dpkit.sim.timeline import drawing
from dpkit.sim.timeline.drawing import BLUE, GREEN, TRACK, WIDTH

LEFT = 76  # of the picture
RIGHT = 14
GAP = 12  # between ranks
CELL = 22  # the height of a box
ROW = 74  # the height of a step
Levels = list[list[int]]  # of each rank, of each chunk: ranks added up


class Grid(NamedTuple):
    """Where the boxes of a picture lie."""

    world_size: int
    num_chunks: int

    @property
    def rank_width(self) -> float:
        """The width of all boxes of a rank."""
        between = GAP * (self.world_size - 1)
        return (WIDTH - LEFT - RIGHT - between) / self.world_size

    @property
    def width(self) -> float:
        """The width of a box."""
        return self.rank_width / self.num_chunks

    def x(self, rank: int, chunk: int) -> float:
        """Return the left side of a box."""
        # Rank 1, chunk 2 of two ranks with 4 chunks, each 269 wide:
        # 76 + 1 * (269 + 12) + 2 * 67.25 = 491.5.
        return LEFT + rank * (self.rank_width + GAP) + chunk * self.width


def draw_plan(plan: Plan) -> drawing.Drawing:
    """Draw what each rank holds after each step, and what is sent between."""
    grid = Grid(plan.world_size, plan.num_chunks)
    parts = [*heads(grid)]
    for number, levels in enumerate(levels_of(plan)):
        y = 76 + number * ROW
        label = f"step {number}" if number else "start"
        parts.append(drawing.quiet_text(14, y + 16, label))
        parts += [*frames(grid, y), *fills(grid, levels, y)]
        if number < len(plan.steps):
            parts += [_arrow(grid, m, y) for m in plan.steps[number]]
    title = f"{words_for(plan)}: what each rank holds after each"
    height = 76 + len(plan.steps) * ROW + CELL + 16
    return drawing.page(parts, height, title)


def levels_of(plan: Plan) -> Iterator[Levels]:
    """Yield how many ranks are added up in each chunk, before and after steps.

    What it yields is a list for each rank, with a number for each chunk.
    """
    for stop in range(len(plan.steps) + 1):
        steps = plan.steps[:stop]
        so_far = Plan(plan.name, plan.world_size, plan.num_chunks, steps)
        yield [[len(names) for names in chunks] for chunks in follow(so_far)]


def frames(grid: Grid, y: float) -> Iterator[str]:
    """Yield the empty boxes of all ranks, with their top at ``y``."""
    for rank in range(grid.world_size):
        for chunk in range(grid.num_chunks):
            x = grid.x(rank, chunk)
            yield drawing.box(x, y, grid.width - 2, CELL, fill=TRACK)


def fills(
    grid: Grid, levels: Levels, y: float, before: Levels | None = None
) -> Iterator[str]:
    """Yield what fills the boxes of a row.

    Args:
        grid: Where the boxes are.
        levels: How many ranks are added up in each, by rank and chunk.
        y: The top of the row, in pixels.
        before: The levels one step earlier: only boxes whose level has changed
            are drawn. None: all are.
    """
    for rank, chunks in enumerate(levels):
        for chunk, level in enumerate(chunks):
            if before is None or before[rank][chunk] != level:
                height = CELL * min(1, level / grid.world_size)
                x = grid.x(rank, chunk)
                width = grid.width - 2
                full = level == grid.world_size
                colour = GREEN if full else BLUE
                bottom = y + CELL - height
                yield drawing.box(x, bottom, width, height, fill=colour)


def heads(grid: Grid) -> Iterator[str]:
    """Yield the names of the ranks, above their boxes, and the legend."""
    for rank in range(grid.world_size):
        x = grid.x(rank, 0) + grid.rank_width / 2
        label = f"rank {rank}" if grid.world_size <= 5 else f"{rank}"
        bold = ' font-weight="600"'
        yield drawing.text(x, 62, label, anchor="middle", more=bold)
    entries = [("a part of the sum", BLUE, ""), ("the whole sum", GREEN, "")]
    yield from drawing.legend(LEFT, 24, entries)


def _arrow(grid: Grid, message: Message, y: float) -> str:
    """Draw a message from a box to one a step below."""
    half = (message.stop - message.first) * grid.width / 2 - 1
    x1 = grid.x(message.source, message.first) + half
    x2 = grid.x(message.target, message.landing[0]) + half
    y1 = y + CELL + 3
    y2 = y + ROW - 5
    colour = BLUE if message.adds else GREEN
    shaft = drawing.line(
        x1, y1, x2, y2, colour=colour, more=' stroke-width="1.4"'
    )
    # The head: a triangle along the arrow, 8 long and 6 wide.
    far = ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5
    dx = 8 * (x2 - x1) / far
    dy = 8 * (y2 - y1) / far
    corners = [(x2, y2)]
    corners += [
        (x2 - dx - 0.375 * i * dy, y2 - dy + 0.375 * i * dx) for i in (1, -1)
    ]
    points = "L".join(
        f"{drawing.number(x)} {drawing.number(z)}" for x, z in corners
    )
    return f'{shaft}<path d="M{points}z" fill="{colour}"/>'


def words_for(plan: Plan) -> str:
    """Return the name and the size of a plan, as the title of its picture."""
    return f"{plan.name}, {plan.world_size} ranks, {len(plan.steps)} steps"
