"""A picture of the step that all frameworks take."""

from dpbook.common.lanes import Arrow, device, draw_lanes
from dpbook.common.matrices import Panels
from dpbook.elsewhere.cuts import by_tensor_split

ROWS = 257  # of a batch


def draw_same_step() -> Panels:
    """Draw one step on two devices that divides by the rows once."""
    labels = "gradient", f"divided\nby {ROWS}", "update"
    lanes = [
        device(rank, f"{rows}\nrows", "losses,\nsummed", *labels)
        for rank, rows in enumerate(by_tensor_split(ROWS, 2))
    ]
    first, second = by_tensor_split(ROWS, 2)
    drawn = draw_lanes(
        f"A step with {ROWS} rows",
        lanes,
        [Arrow((0, 2), (1, 2), "added up", both=True)],
        description=f"Device 0 has {first} rows and device 1 has {second}. "
        "Each takes the gradient of the sum of its losses. The two gradients "
        f"are added up, and each device divides the sum by {ROWS} and "
        "updates.",
    )
    return Panels([drawn], in_a_row=1, width=24)
