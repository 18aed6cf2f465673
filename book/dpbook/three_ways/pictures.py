"""The three ways, drawn: who has what of one network, and what is sent."""

from collections.abc import Sequence

from dpbook.common.matrices import (
    Held,
    Panels,
    arrow,
    band,
    band_height,
    in_a_line,
    panel,
)
from dpkit.sim.timeline.drawing import QUIET, Drawing, text

WIDTH = 240.0  # of a picture
UNIT = 9.0  # of a row or column
SIZES = {"x": (4, 2), "W": (2, 4), "h": (4, 4), "V": (4, 2), "y": (4, 2)}
TOP = 42.0  # of the first band
GAP = 66.0  # between the bands


def draw_ways(*ways: str, in_a_row: int = 3) -> Panels:
    """Draw who has what of the network y = relu(x W) V, and what is sent.

    Args:
        ways: Which to draw, in order, of "one" (one device), "network"
            (network partitioning), "layer" (layer partitioning) and "data"
            (data parallelism), each of the last three on two devices.
        in_a_row: How many pictures stand side by side, at most.

    Example:
        >>> draw_ways("one").pictures[0].title[:36]
        'One device, the network. It has x, W'
    """
    drawn = {"one": _one, "network": _network, "layer": _layer, "data": _data}
    return Panels([drawn[way]() for way in ways], in_a_row)


def _one() -> Drawing:
    matrices = in_a_line(SIZES, UNIT, WIDTH)
    band: Held = [(matrix, matrix.whole) for matrix in matrices]
    description = "It has x, W, h, V and y, all whole, and sends nothing."
    return _picture(
        "One device",
        "the network",
        bands=[band],
        sent=[],
        description=description,
    )


def _network() -> Drawing:
    x, w, h, v, y = in_a_line(SIZES, UNIT, WIDTH)
    bands: list[Held] = [
        [(x, x.whole), (w, w.whole), (h, h.whole), (v, None), (y, None)],
        [(x, None), (w, None), (h, h.whole), (v, v.whole), (y, y.whole)],
    ]
    top, bottom = _between(bands)
    sent = [
        *arrow(h.middle - 7, top, bottom, "down"),
        *arrow(h.middle + 7, top, bottom, "up"),
        text(h.middle - 16, top + 30, "activations", anchor="end"),
        text(h.middle + 16, top + 22, "their"),
        text(h.middle + 16, top + 38, "gradients"),
    ]
    return _picture(
        "Network partitioning",
        "a cut between layers",
        bands=bands,
        sent=sent,
        description="Device 0 has x, all of W and the activations h. It sends "
        "h to device 1, which has all of V and computes y. The gradient of h "
        "comes back.",
    )


def _layer() -> Drawing:
    x, w, h, v, y = in_a_line(SIZES, UNIT, WIDTH)
    bands: list[Held] = [
        [
            (x, x.whole),
            (w, w.columns(start, start + 2)),
            (h, h.columns(start, start + 2)),
            (v, v.rows(start, start + 2)),
            (y, y.whole),
        ]
        for start in (0, 2)
    ]
    top, bottom = _between(bands)
    sent = [
        *arrow(y.middle, top, bottom, "both"),
        *arrow(x.middle, top, bottom, "both"),
        text(x.middle + 10, top + 22, "gradients of x, summed"),
        text(y.middle - 10, top + 42, "parts of y, summed", anchor="end"),
    ]
    return _picture(
        "Layer partitioning",
        "a cut through each layer",
        bands=bands,
        sent=sent,
        description="Both devices have x. Device 0 has the left columns of W "
        "and h and the upper rows of V, device 1 the others. Each computes a "
        "part of y, and the parts are summed. In backward the parts of the "
        "gradient of x are summed.",
    )


def _data() -> Drawing:
    x, w, h, v, y = in_a_line(SIZES, UNIT, WIDTH)
    bands: list[Held] = [
        [
            (x, x.rows(start, start + 2)),
            (w, w.whole),
            (h, h.rows(start, start + 2)),
            (v, v.whole),
            (y, y.rows(start, start + 2)),
        ]
        for start in (0, 2)
    ]
    top, bottom = _between(bands)
    middle = (w.middle + v.middle) / 2
    lines = "gradients", "of all weights,", "summed"
    sent = [
        *arrow(w.middle, top, bottom, "both"),
        *arrow(v.middle, top, bottom, "both"),
        *(
            text(middle, top + 17 + 16 * i, label, anchor="middle")
            for i, label in enumerate(lines)
        ),
    ]
    return _picture(
        "Data parallelism",
        "a cut through the batch",
        bands=bands,
        sent=sent,
        description="Both devices have all of W and V. Device 0 has the upper "
        "rows of x, h and y, device 1 the lower ones. The gradients of all "
        "weights are summed.",
    )


def _between(bands: Sequence[Held]) -> tuple[float, float]:
    """Return the ends of an arrow from one band to the other."""
    top = TOP + band_height(bands[0])
    return top + 4, top + GAP - 4


def _picture(
    name: str,
    cut: str,
    *,
    bands: Sequence[Held],
    sent: Sequence[str],
    description: str,
) -> Drawing:
    tall = band_height(bands[0])
    bold = ' font-weight="600" font-size="14"'
    parts = [
        text(WIDTH / 2, 15, name, anchor="middle", more=bold),
        text(WIDTH / 2, 32, cut, anchor="middle", more=f' fill="{QUIET}"'),
        *sent,
    ]
    for device, held in enumerate(bands):
        parts += band(device, TOP + device * (tall + GAP), WIDTH, held)
    height = TOP + len(bands) * tall + (len(bands) - 1) * GAP + 2
    return panel(parts, WIDTH, height, f"{name}, {cut}. {description}")
