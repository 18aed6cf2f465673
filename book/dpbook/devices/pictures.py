"""A picture of the host and the device: launches, and what they start."""

from dpbook.common.lanes import Arrow, Block, Lane, device, draw_lanes
from dpbook.common.matrices import Panels

PRODUCT = 3  # as long as so many launches, as in fig-devices-launch
COUNT = 3  # products


def draw_launches() -> Panels:
    """Draw a host that launches products, and a device that computes them.

    Example:
        >>> draw_launches().pictures[0].title[:41]
        'Three products. The host launches them on'
    """
    done = 1 + COUNT * PRODUCT  # the device starts after the first launch
    starts = [1 + PRODUCT * i for i in range(COUNT)]
    launches = [Block(str(i + 1), i) for i in range(COUNT)]
    host = [
        *launches,
        Block("waits", COUNT, done - COUNT, is_idle=True),
        Block("goes on", done, 3),
    ]
    products = [
        Block(f"product {i + 1}", start, PRODUCT)
        for i, start in enumerate(starts)
    ]
    lanes = [
        Lane("host", host),
        Lane("device 0", products, device(0).colour),
    ]
    launched = [Arrow((0, i), (1, start)) for i, start in enumerate(starts)]
    drawn = draw_lanes(
        "Three products",
        lanes,
        [*launched, Arrow((1, done - 1), (0, done))],
        description="The host launches them one after another and waits. The "
        "device computes each for as long as three launches take. When the "
        "last is done, the host goes on.",
    )
    return Panels([drawn], in_a_row=1, width=24)
