"""A ring of attention, live: who computes what in which step, who waits."""

from collections.abc import Sequence
from math import gcd

from dpbook.explore.figure import (
    Choice,
    LiveFigure,
    Number,
    SettingError,
    Shown,
)
from dpbook.formulas.ring_attention import (
    Meeting,
    RingStep,
    meetings,
    pieces_of,
    ring_steps,
    share,
)
from dpkit.sim.clock import Record, Span
from dpkit.sim.hardware import (
    ACCELERATORS,
    LINKS,
    achieved_flops_per_second,
    copy_seconds,
)
from dpkit.sim.timeline import draw_timeline, drawing
from dpkit.units import show_seconds

MOST_DEVICES = 8
WIDTH = 4096  # of the model: the heads together
NUM_BYTES = 2  # of a number in bfloat16
IN_ORDER = "in order"
BALANCED = "head and tail"
LAYOUTS = (IN_ORDER, BALANCED)
WIRES = ("nvlink3", "infiniband200", "ethernet100")
RATE = achieved_flops_per_second(ACCELERATORS["a100"], "bfloat16", "flash")
PALE = "#dbe5fb"  # of the blue; letters in ink stand on it
# Pixels of the squares.
LEFT = 92
LARGEST, WHOLE = 56, 400  # of a pair, of all pairs together


def show_ring(
    layout: str, devices: int, step: int, tokens: int, link: str
) -> Shown:
    """Show the pairs of pieces by their steps, and the ranks in time.

    Args:
        layout: A name in ``LAYOUTS``.
        devices: How many A100s there are, a rank each.
        step: The one that is shown.
        tokens: Those of each device.
        link: What joins the devices, a preset.

    Raises:
        SettingError: there is no such step, or a part has no two halves.
    """
    balanced = layout == BALANCED
    if step >= devices:
        raise SettingError(
            "a ring has as many steps as devices, the first is step 0 "
            f"(step: {step}, devices: {devices})",
            "step",
        )
    if balanced and tokens % 2:
        raise SettingError(
            "head and tail are equally long, so that their number of tokens "
            f"is even (tokens on each device: {tokens})",
            "tokens",
        )
    alone = alone_seconds(tokens * devices)
    steps = ring_steps(
        devices, balanced=balanced, alone=alone, hop=hop_seconds(tokens, link)
    )
    end = max(s.end for s in steps)
    label = f"{devices} × a100, {link}, {layout}"
    return Shown(
        [
            _draw_pairs(devices, balanced, step),
            _draw_steps(steps, step, label),
        ],
        _facts(steps, k=devices, balanced=balanced, end=end),
        _sentence(steps, balanced=balanced, alone=alone, end=end),
    )


def alone_seconds(length: int) -> float:
    """Return the seconds of causal attention on one device, forward."""
    return 2 * length**2 * WIDTH / RATE


def hop_seconds(tokens: int, link: str) -> float:
    """Return how long the keys and values of a device are on their way."""
    return copy_seconds(LINKS[link], 2 * NUM_BYTES * WIDTH * tokens)


def _computing(steps: Sequence[RingStep], rank: int) -> float:
    return sum(s.end - s.start for s in steps if s.rank == rank)


def _facts(
    steps: Sequence[RingStep], *, k: int, balanced: bool, end: float
) -> list[tuple[str, ...]]:
    """Return a line for each rank; the first one has their names."""
    facts: list[tuple[str, ...]] = [
        ("rank", "of all pairs", "computes", "waits")
    ]
    for rank in range(k):
        busy = _computing(steps, rank)
        halves, all_halves = share(rank, k=k, balanced=balanced)
        divisor = gcd(halves, all_halves)
        facts.append(
            (
                f"{rank}",
                f"{halves // divisor}/{all_halves // divisor}",
                show_seconds(busy),
                show_seconds(max(end - busy, 0.0)),
            )
        )
    return facts


def _said(pairs: Sequence[Meeting]) -> str:
    """Return which pieces of queries see which pieces of keys.

    Example:
        >>> _said([Meeting(7, 0, False), Meeting(7, 7, True)]), _said([])
        ('7 sees 0, 7', 'nothing')
    """
    keys: dict[int, list[str]] = {}
    for pair in pairs:
        keys.setdefault(pair.query, []).append(str(pair.key))
    parts = [f"{q} sees {', '.join(of)}" for q, of in keys.items()]
    return " and ".join(parts) or "nothing"


def _sentence(
    steps: Sequence[RingStep], *, balanced: bool, alone: float, end: float
) -> str:
    """Return how much faster the ring is, and what is lost."""
    k = 1 + max(s.rank for s in steps)
    least, *_, most = (_computing(steps, rank) for rank in range(k))
    start = (
        f"{k} devices take {show_seconds(end)} and one takes "
        f"{show_seconds(alone)}, {alone / end:.2f} times as long."
    )
    if balanced:
        start += f" Each rank computes for {show_seconds(most)}"
    else:
        start += (
            f" Rank {k - 1} computes for {show_seconds(most)}, rank 0 for "
            f"{show_seconds(least)}"
        )
    waits = end - most
    if waits < 1e-9 * end:
        ends = "." if balanced else ", and waits for the others."
        return start + ends
    return (
        f"{start}; messages keep rank {k - 1} waiting {show_seconds(waits)}."
    )


def _draw_steps(
    steps: Sequence[RingStep], step: int, label: str
) -> drawing.Drawing:
    """Draw a row for each rank, and what it computes; the rest is idle."""
    spans = [
        Span(
            device=f"rank {s.rank}",
            stream="compute",
            name=f"{s.number}",
            kind=f"step {step}" if s.number == step else "compute",
            start=s.start,
            end=s.end,
        )
        for s in steps
        if s.end > s.start
    ]
    spans.sort(key=lambda span: (span.device, span.start))
    return draw_timeline(Record(spans, label=label), 0.0)


def _draw_pairs(k: int, balanced: bool, step: int) -> drawing.Drawing:
    """Draw a square for each pair of pieces, with the number of its step."""
    owners = {
        p: r for r in range(k) for p in pieces_of(r, k=k, balanced=balanced)
    }
    num = len(owners)
    size = min(LARGEST, WHOLE / num)
    entries = [
        (f"step {step}", drawing.VIOLET, ""),
        ("other steps", PALE, ""),
        ("not seen", drawing.TRACK, ""),
    ]
    parts = [
        drawing.bold_text(14, 22, "rows: queries, columns: keys"),
        *drawing.legend(14, 48, entries),
    ]
    top = 66.0
    for piece, owner in owners.items():
        y = top + piece * size
        middle = y + size / 2 + 5
        parts.append(
            drawing.text(LEFT - 8, middle, f"rank {owner}", anchor="end")
        )
        ground = LEFT, y, num * size - 1, size - 1
        parts.append(drawing.box(*ground, fill=drawing.TRACK))
        for number in range(k):
            chosen = number == step
            parts += [
                part
                for pair in meetings(owner, number, k=k, balanced=balanced)
                if pair.query == piece
                for part in _square(
                    pair, y=y, size=size, number=number, chosen=chosen
                )
            ]
    layout = BALANCED if balanced else IN_ORDER
    title = f"pieces of queries that see pieces of keys, {layout}"
    in_step = [
        list(meetings(rank, step, k=k, balanced=balanced)) for rank in range(k)
    ]
    spoken = [f"rank {r}: {_said(pairs)}" for r, pairs in enumerate(in_step)]
    title += f"; in step {step} {'; '.join(spoken)}"
    return drawing.page(parts, top + num * size + 14, title)


def _square(
    pair: Meeting, *, y: float, size: float, number: int, chosen: bool
) -> list[str]:
    """Draw a pair; of one that the mask divides, the half that is seen."""
    x = LEFT + pair.key * size
    fill = drawing.VIOLET if chosen else PALE
    inner = size - 1
    tip_text = f"queries {pair.query}, keys {pair.key}: step {number}"
    tip = f"<title>{tip_text}</title>"
    if pair.masked:
        corners = " ".join(
            f"{drawing.number(a)},{drawing.number(b)}"
            for a, b in ((x, y), (x, y + inner), (x + inner, y + inner))
        )
        shape = f'<polygon points="{corners}" fill="{fill}">{tip}</polygon>'
    else:
        box = drawing.box(x, y, inner, inner, fill=fill)
        shape = f"{box[:-2]}>{tip}</rect>"
    colour = "#ffffff" if chosen else drawing.INK
    # In a triangle, a number stands in the corner below.
    across = x + size * (0.3 if pair.masked else 0.5)
    down = y + size * (0.72 if pair.masked else 0.5) + 5
    more = f' font-size="{min(13, size / 2):g}" fill="{colour}"'
    return [
        shape,
        drawing.text(across, down, f"{number}", anchor="middle", more=more),
    ]


RING = LiveFigure(
    "ring",
    "A ring of attention with a causal mask",
    show_ring,
    {
        "layout": Choice("pieces", IN_ORDER, LAYOUTS),
        "devices": Number("devices", 4, tuple(range(2, MOST_DEVICES + 1))),
        "step": Number("step", 0, tuple(range(MOST_DEVICES))),
        "tokens": Number(
            "tokens on each device", 32_768, [2**i for i in range(10, 17)]
        ),
        "link": Choice("link", "nvlink3", WIRES),
    },
    presets={
        "head and tail": {"layout": BALANCED},
        "eight devices in order": {"devices": 8},
        "a network, and few tokens": {
            "layout": BALANCED,
            "tokens": 8192,
            "link": "infiniband200",
        },
    },
)
