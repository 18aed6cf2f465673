"""A job of three processes: a step, a process that is lost, a new start."""

from collections.abc import Sequence

from dpbook.common.matrices import Panels
from dpbook.common.shares import Cell, Column, Device, Sent, draw_moment, named
from dpkit.sim.timeline.drawing import Drawing

COLUMNS = [
    Column("rows", x=78, width=56),
    Column("weights", x=150, width=78),
]
ROWS = ("0–3", "4–7", "8–11")  # of twelve, by rank
X = 92.0  # of the arrows


def draw_lost_process() -> Panels:
    """Draw three ranks and their file: a step, a loss, and a new start."""
    return Panels(
        [
            _moment(
                "Step 8",
                "every rank has its own rows",
                weights=["step 8"] * 3,
                sent=[
                    Sent(0, X, "up", "rank 0 saves"),
                    Sent(1, X, "both", "gradients, averaged"),
                    Sent(2, X, "both"),
                ],
                description="Each rank has four of twelve rows, and all "
                "weights. The ranks average their gradients. Rank 0 saves the "
                "weights of step 8 in a file.",
            ),
            _moment(
                "A process is lost",
                "the others cannot go on",
                weights=["step 10", "", "step 10"],
                sent=[],
                description="Rank 1 is lost. Ranks 0 and 2 have the weights "
                "of step 10, and wait. The file has those of step 8.",
            ),
            _moment(
                "All start again",
                "from the file, on any machines",
                weights=["step 8"] * 3,
                sent=[
                    Sent(0, X, "down", "rank 0 reads"),
                    Sent(1, X, "down", "and sends on"),
                    Sent(2, X, "down"),
                ],
                description="Rank 0 reads the file and sends its contents to "
                "the other ranks. All have the weights of step 8, and their "
                "rows.",
            ),
        ]
    )


def _moment(
    title: str,
    when: str,
    *,
    weights: Sequence[str],
    sent: Sequence[Sent],
    description: str,
) -> Drawing:
    """Draw the file and the ranks; one without weights is lost."""
    devices = [Device("a file", None, [[], named(["step 8"], 0)])]
    for rank, has in enumerate(weights):
        blocks = [named([ROWS[rank]], rank), named([has], rank)]
        if not has:
            blocks = [[[Cell(None)]], [[Cell(None, "lost")]]]
        devices.append(Device(f"rank {rank}", rank, blocks))
    return draw_moment(
        title,
        when,
        columns=COLUMNS,
        devices=devices,
        sent=sent,
        description=description,
    )
