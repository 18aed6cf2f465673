"""What devices keep, several steps in one figure, what a peak consists of."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import replace

from dpbook.common.matrices import Panels
from dpbook.common.shares import Column, Device, Sent, draw_moment, grid
from dpbook.sharding.runs import WATCHED, Step
from dpkit.sim.clock import Block, Span, streams
from dpkit.sim.timeline import Timeline
from dpkit.sim.timeline.drawing import Drawing
from dpkit.tables import Table, table

NUM_DEVICES, NUM_BLOCKS = 4, 6  # those of the chapter
PARAMETERS = Column("parameters", x=84, width=144)


def draw_what_a_device_keeps() -> Panels:
    """Draw the parameters on four devices, whole and in shards.

    A row of cells is a block of the network, and a column is a shard.
    """
    return Panels(
        [
            _kept(
                "Data parallelism",
                "each device keeps all",
                everything=True,
                sent="gradients, summed",
                description="Each of four devices has all cells, and the "
                "gradients are summed over the devices.",
            ),
            _kept(
                "Sharded",
                "between two steps",
                description="Device 0 has the first quarter of each block, "
                "device 1 the second, and so on. Nothing is sent.",
            ),
            _kept(
                "Sharded",
                "a block is computed",
                whole_block=2,
                sent="shards of the block",
                description="Each device has its quarter of all blocks, and "
                "in addition one whole block, whose shards the devices send "
                "to each other.",
            ),
        ]
    )


def _kept(
    title: str,
    when: str,
    description: str,
    everything: bool = False,
    whole_block: int | None = None,
    sent: str = "",
) -> Drawing:
    devices = []
    for device in range(NUM_DEVICES):
        shard = "".join(
            "#" if i == device else "." for i in range(NUM_DEVICES)
        )
        rows = [
            "#" * NUM_DEVICES if everything or block == whole_block else shard
            for block in range(NUM_BLOCKS)
        ]
        devices.append(
            Device(f"device {device}", device, [grid(rows, device)])
        )
    arrows = [
        Sent(above, x=98, ends="both", label=sent if above == 0 else "")
        for above in range(NUM_DEVICES - 1)
        if sent
    ]
    return draw_moment(
        title,
        when,
        columns=[PARAMETERS],
        devices=devices,
        sent=arrows,
        description=description,
        cell_height=7,
    )


def both_timelines(steps: Mapping[str, Step]) -> Timeline:
    """Return what one device does in several steps, as one timeline.

    It has forward and backward of the device that is watched, under the name
    of the step and the peak of its memory. A row has what the device computes,
    sends or receives, or adds up meanwhile.
    """
    spans = [
        replace(span, device=f"{name}, {step.peak / 1e6:.0f} MB", stream=row)
        for name, step in steps.items()
        for row, found in _rows(step.timeline).items()
        for span in found
        if span.start < step.seconds
    ]
    (label, *_) = (step.timeline.label for step in steps.values())
    return Timeline(spans, label=label)


def _rows(timeline: Timeline) -> dict[str, list[Span]]:
    """Return the spans of the device by what a stream is for."""
    rows: dict[str, list[Span]] = {}
    for stream, spans in streams(timeline.spans)[WATCHED].items():
        name = "compute" if stream == "compute" else _purpose(spans)
        rows.setdefault(name, []).extend(spans)
    for spans in rows.values():
        spans.sort(key=lambda span: span.start)
    return rows


def _purpose(spans: list[Span]) -> str:
    """Return what a side stream is for, by its first span."""
    first = spans[0].name
    if first.startswith("copy to sim"):
        return "sends"
    return "receives" if first.startswith("copy from sim") else "sums"


def fullest(timeline: Timeline) -> list[Block]:
    """Return what is alive on the watched device when that is the most."""
    blocks = [b for b in timeline.blocks if b.device == WATCHED]

    def alive(moment: int) -> list[Block]:
        return [
            b
            for b in blocks
            if b.allocated <= moment and (b.freed is None or b.freed > moment)
        ]

    moments = {block.allocated for block in blocks}
    return max(
        map(alive, moments), key=lambda bs: sum(b.num_bytes for b in bs)
    )


def alive_at_peak(step: Step) -> Table:
    """Return what is alive at the peak of a step, as a table.

    What has less than a hundredth of all bytes is in the row "smaller".
    """
    blocks = fullest(step.timeline)
    total = sum(b.num_bytes for b in blocks)
    rows: list[dict[str, object]] = []
    rest = 0
    found = Counter((b.num_bytes, b.category) for b in blocks)
    for (size, what), number in sorted(found.items(), reverse=True):
        if size * number < total / 100:
            rest += size * number
        else:
            rows.append(
                {
                    "what": what,
                    "MB each": f"{size / 1e6:.2f}",
                    "number": number,
                    "MB": f"{size * number / 1e6:.1f}",
                }
            )
    rows.append({"what": "smaller", "MB": f"{rest / 1e6:.1f}"})
    rows.append({"what": "together", "MB": f"{total / 1e6:.1f}"})
    return table(rows)


def computing(step: Step) -> defaultdict[str, float]:
    """Return the seconds that a device computes, by the operation's name.

    They are those of forward and backward on the watched device.
    """
    seconds: defaultdict[str, float] = defaultdict(float)
    for span in step.timeline.spans:
        within = span.start < step.seconds
        if span.device == WATCHED and span.kind == "compute" and within:
            seconds[span.name] += span.end - span.start
    return seconds
