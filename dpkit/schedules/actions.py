"""The actions that a schedule of a pipeline is made of.

``1F0`` is the forward pass of micro-batch 0 through stage 1, ``1B0`` its
backward pass. A backward pass may be split: ``1I0`` makes the gradient of the
stage's input, and ``1W0`` makes those of its weights. A schedule is a list of
actions for each device.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

#: A stage computes its output, for a micro-batch.
FORWARD = "F"
#: It makes all gradients: of its input and of its weights.
BACKWARD = "B"
#: The first half of a backward pass: it makes the gradient of its input.
INPUT_GRADIENTS = "I"
#: The second half, which may be put off: it makes those of its weights.
WEIGHT_GRADIENTS = "W"

# What is done once with each micro-batch on each stage, in order.
WHOLE_KINDS = (FORWARD, BACKWARD)
SPLIT_KINDS = (FORWARD, INPUT_GRADIENTS, WEIGHT_GRADIENTS)

KIND_NAMES = {
    FORWARD: "forward",
    BACKWARD: "backward",
    INPUT_GRADIENTS: "input gradients",
    WEIGHT_GRADIENTS: "weight gradients",
}


class Action(NamedTuple):
    """One thing that a device does.

    Example:
        >>> str(Action(1, "F", 0)), Action.parse("12B3")
        ('1F0', Action(stage=12, kind='B', micro_batch=3))
    """

    stage: int
    kind: str  #: FORWARD, BACKWARD, INPUT_GRADIENTS or WEIGHT_GRADIENTS
    micro_batch: int

    def __str__(self) -> str:
        return f"{self.stage}{self.kind}{self.micro_batch}"

    @classmethod
    def parse(cls, text: str) -> "Action":
        """Read an action such as ``1F0``."""
        match = re.fullmatch(r"(\d+)([FBIW])(\d+)", text)
        if match is None:
            raise ValueError(
                f"not an action (text: {text!r}); a stage, one of "
                f"{', '.join(KIND_NAMES)}, and a micro-batch, such as 1F0"
            )
        return cls(int(match[1]), match[2], int(match[3]))


Schedule = list[list[Action]]
# An action as a plain tuple: equal to it, and made much faster.
Triple = tuple[int, str, int]


def parse(text: str) -> Schedule:
    r"""Read a schedule: a line for each device, actions between spaces.

    Dots, for ticks in which a device is idle, and empty lines are left out.

    Example:
        >>> schedule = parse("0F0 .   .   0B0\n.   1F0 1B0")
        >>> [len(actions) for actions in schedule]
        [2, 2]
    """
    lines = [line.split() for line in text.splitlines() if line.strip()]
    return [[Action.parse(w) for w in line if w != "."] for line in lines]


def most_in_flight(actions: Sequence[Action]) -> int:
    """Return the most micro-batches that a device keeps at once.

    It keeps one from its forward pass until the last of its gradients is
    made. Each of its stages counts.

    Example:
        >>> from dpkit.schedules.named import one_f_one_b
        >>> [most_in_flight(row) for row in one_f_one_b(3, 5)]
        [3, 2, 1]
    """
    # 0F0 0F1 0B0 0F2 0B1 0B2 keeps 1 2 1 2 1 0: at most 2.
    kept = most = 0
    for action in actions:
        if action.kind == FORWARD:
            kept += 1
        elif action.kind in (BACKWARD, WEIGHT_GRADIENTS):
            kept -= 1
        most = max(most, kept)
    return most


def owners(schedule: Schedule) -> dict[int, int]:
    """Return the number of the device that each stage is on."""
    stages = [{action[0] for action in row} for row in schedule]
    return {stage: r for r, found in enumerate(stages) for stage in found}
