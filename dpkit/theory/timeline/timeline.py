"""A timeline: who did what, when.

It is data (:class:`Record`) that can add itself up, draw itself, and go to
and come from files that https://ui.perfetto.dev shows. Times are seconds
since the timeline began.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from dpkit.theory.clock.record import Block, Record, Span
from dpkit.theory.timeline.chrome import read_trace, write_trace
from dpkit.theory.timeline.drawing import Drawing
from dpkit.theory.timeline.gantt import draw_timeline
from dpkit.theory.timeline.memory_chart import draw_memory
from dpkit.theory.timeline.summary import Summary, summarize
from dpkit.theory.units import show_seconds

__all__ = ["Block", "Span", "Timeline"]


@dataclass(repr=False)
class Timeline(Record):
    """What happened on every device and host, in time.

    Attributes:
        spans: What took time, in the order of issue.
        blocks: The memory that was allocated, in the order of issue.
        assumptions: What the times rest on, a sentence each.
        label: "simulated (v100, nvlink2)" or "measured (NVIDIA H200)".

    Example:
        >>> mm = Span("sim:0", "compute", "mm", "compute", 0.0, 0.25)
        >>> timeline = Timeline([mm], label="simulated (v100, nvlink2)")
        >>> timeline
        <timeline: simulated (v100, nvlink2), 1 span, 250 ms>
        >>> timeline.summary().devices["sim:0"].busy
        0.25
        >>> timeline.draw()
        <drawing: timeline, simulated (v100, nvlink2): sim:0, 250 ms>
    """

    def __repr__(self) -> str:
        count = len(self.spans)
        spans = f"{count} span{'s' if count != 1 else ''}"
        facts = [self.label, spans, show_seconds(self.makespan)]
        return f"<timeline: {', '.join(filter(None, facts))}>"

    def _repr_svg_(self) -> str:
        return self.draw().svg

    def summary(self) -> Summary:
        """Add up where the time of each device and host went."""
        return summarize(self)

    def between(self, start: float, end: float) -> "Timeline":
        """Return the part of the timeline that lies in a window of time.

        Spans that reach out of the window are cut; their bytes and flops
        stay those of the whole. The memory, which has an order and no times,
        stays as it is.

        Raises:
            ValueError: If the window ends before it starts.
        """
        if end <= start:
            raise ValueError(
                f"the window ends before it starts (start: {start}, "
                f"end: {end})"
            )
        # Window 2–5:    spans 0–3 and 4–9 become 2–3 and 4–5, 6–7 goes.
        spans = [
            replace(s, start=max(s.start, start), end=min(s.end, end))
            for s in self.spans
            if s.start < end and s.end > start
        ]
        return replace(self, spans=spans)

    def draw(self, title: str = "", least_seconds: float = 0.0) -> Drawing:
        """Draw a row for each stream and a bar for each span.

        Args:
            title: What the picture shows, for those who see text alone; made
                from the timeline if it is empty.
            least_seconds: What the axis covers at the least, so that two
                timelines can be drawn to one scale.
        """
        return draw_timeline(self, title, least_seconds)

    def draw_memory(self, device: str, capacity: int | None = None) -> Drawing:
        """Draw the memory of a device, by category, in the order of issue.

        Args:
            device: "sim:0", …
            capacity: The bytes that the device has; a line, if given.
        """
        return draw_memory(self, device, capacity)

    def to_svg(self, path: str | Path) -> None:
        """Write the picture of the timeline to a file."""
        self.draw().save(path)

    def to_chrome(self, path: str | Path) -> None:
        """Write a file for Perfetto: ".json", or ".json.gz" if compressed."""
        write_trace(self, path)

    @classmethod
    def from_chrome(cls, path: str | Path) -> "Timeline":
        """Read a file of ``to_chrome``, or of ``torch.profiler``.

        Of what ``torch.profiler``'s ``export_chrome_trace`` wrote, it takes
        what ran on the devices, the calls that launched it and that waited
        for it, and the outermost operations on the host.

        Args:
            path: JSON, which may be compressed by gzip.

        Raises:
            ValueError: If the file is no trace, or nothing of the above is
                in it.
        """
        return cls(**vars(read_trace(path)))
