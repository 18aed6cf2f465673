"""A picture of what the memory of a device holds in a step."""

from dpbook.common.lanes import Block, Lane, draw_lanes
from dpbook.common.matrices import Panels
from dpbook.common.plots import COLOURS

PARTS = ("forward", "backward", "update")
# What the memory holds -> what becomes of it in each part of a step.
HELD = {
    "parameters": ("stay", "stay", "change"),
    "optimizer\nstate": ("stays", "stays", "changes"),
    "activations": ("grow", "are freed", ""),
    "gradients": ("", "grow", "are freed"),
}


def draw_held() -> Panels:
    """Draw what the memory of a device holds in each part of a step.

    Example:
        >>> draw_held().pictures[0].title[-45:]
        'gradients, backward: grow, update: are freed.'
    """
    lanes = [Lane("", [Block(part, at) for at, part in enumerate(PARTS)])]
    said = []
    for (name, labels), colour in zip(HELD.items(), COLOURS):
        blocks = [Block(label, at) for at, label in enumerate(labels) if label]
        lanes.append(Lane(name, blocks, colour))
        what = [
            f"{part}: {label}" for part, label in zip(PARTS, labels) if label
        ]
        said.append(f"{name.replace(chr(10), ' ')}, {', '.join(what)}")
    title = "One step on one device"
    drawn = draw_lanes(title, lanes, description="; ".join(said) + ".")
    return Panels([drawn], in_a_row=1, width=24)
