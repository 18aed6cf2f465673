"""Where the tokens of a layer of experts are, from the router to the sum."""

from collections.abc import Sequence

from dpbook.common.matrices import Panels
from dpbook.common.shares import (
    Cell,
    Cells,
    Column,
    Device,
    Sent,
    draw_moment,
    named,
)
from dpkit.sim.timeline.drawing import Drawing

CHOICES = {0: "c", 1: "a", 2: "c", 3: "a", 4: "d", 5: "a"}  # token -> expert
EXPERTS = ("ab", "cd")  # of each rank
OWN = ((0, 1, 2), (3, 4, 5))  # tokens of each rank
OF_EXPERTS = Column("experts", x=64, width=44)
X, WIDE = 120.0, 110.0  # of the tokens, and later of the outputs


def draw_all_to_alls() -> Panels:
    """Draw six tokens on two ranks, which go to their experts and back.

    They are those of a table of the chapter: token 0 goes to expert c.
    """
    chosen = [[f"{t}→{CHOICES[t]}" for t in own] for own in OWN]
    arrived = [
        [t for t in CHOICES if CHOICES[t] in experts] for experts in EXPERTS
    ]
    outputs = [[f"{CHOICES[t]}({t})" for t in own] for own in OWN]
    return Panels(
        [
            _moment(
                "The routers choose",
                "each rank has its own tokens",
                tokens=OWN,
                labels=chosen,
                sent="all-to-all: tokens",
            ),
            _moment(
                "The experts compute",
                "tokens are with their experts",
                tokens=arrived,
                labels=[
                    [f"{t}→{CHOICES[t]}" for t in tokens] for tokens in arrived
                ],
                sent="all-to-all: outputs",
            ),
            _moment(
                "The outputs are back",
                "each on the rank of its token",
                tokens=OWN,
                labels=outputs,
                heading="outputs",
            ),
        ]
    )


def _moment(
    title: str,
    when: str,
    *,
    tokens: Sequence[Sequence[int]],
    labels: Sequence[Sequence[str]],
    sent: str = "",
    heading: str = "tokens",
) -> Drawing:
    columns = [OF_EXPERTS, Column(heading, X, WIDE)]
    devices = []
    for rank, experts in enumerate(EXPERTS):
        own = _cells(tokens[rank], labels[rank])
        blocks = named(experts, rank), own
        devices.append(Device(f"rank {rank}", rank, blocks))
    has = [
        f"Rank {rank} has experts {' and '.join(experts)}, and "
        f"{', '.join(labels[rank])}."
        for rank, experts in enumerate(EXPERTS)
    ]
    if sent:
        has.append(f"Then an {sent}.")
    arrows = [Sent(0, x=80, ends="both", label=sent)] if sent else []
    return draw_moment(
        title,
        when,
        columns=columns,
        devices=devices,
        sent=arrows,
        description=" ".join(has),
    )


def _cells(tokens: Sequence[int], labels: Sequence[str]) -> Cells:
    """Return a cell for each token, in the colour of its first rank."""
    home = {token: rank for rank, own in enumerate(OWN) for token in own}
    return [[Cell(home[t], label) for t, label in zip(tokens, labels)]]
