"""A timeline: who did what, when.

It is data (:class:`Record`) that can add itself up, draw itself, and go to
and come from files that https://ui.perfetto.dev shows.
"""

from __future__ import annotations

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
        >>> Timeline([mm], label="simulated (v100, nvlink2)")
        <timeline: simulated (v100, nvlink2), 1 span, 250 ms>
    """

    def __repr__(self) -> str:
        count = len(self.spans)
        spans = f"{count} span{'s' if count != 1 else ''}"
        facts = [spans, show_seconds(self.makespan)]
        return (
            f"<timeline: {', '.join([self.label, *facts][not self.label :])}>"
        )

    def _repr_svg_(self) -> str:
        return self.draw().svg

    def summary(self) -> Summary:
        """Add up where the time of each device and host went.

        Example:
            >>> mm = Span("sim:0", "compute", "mm", "compute", 0.0, 0.25)
            >>> add = Span("sim:1", "compute", "add", "compute", 0.25, 1.0)
            >>> Timeline([mm, add]).summary().devices["sim:0"].busy
            0.25
        """
        return summarize(self)

    def between(self, start: float, end: float) -> Timeline:
        """Return the part of the timeline that lies in a window of time.

        Spans that reach out of the window are cut; their bytes and flops
        stay those of the whole. The memory, which has an order and no times,
        stays as it is.

        Args:
            start: Seconds since the timeline began.
            end: Seconds since the timeline began.

        Raises:
            ValueError: If the window ends before it starts.
        """
        # Window 2–5:    spans 0–3 and 4–9 become 2–3 and 4–5, 6–7 goes.
        if end <= start:
            raise ValueError(
                f"the window ends before it starts (start: {start}, "
                f"end: {end})"
            )
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

        Example:
            >>> Timeline(label="simulated (v100, nvlink2)").draw()
            <drawing: timeline, simulated (v100, nvlink2): no spans>
        """
        return draw_timeline(self, title, least_seconds)

    def draw_memory(self, device: str, capacity: int | None = None) -> Drawing:
        """Draw the memory of a device, by category, in the order of issue.

        Args:
            device: "sim:0", …
            capacity: The bytes that the device has; a line, if given.

        Example:
            >>> weights = Block("sim:0", 2**20, "parameters", 0)
            >>> Timeline(blocks=[weights]).draw_memory("sim:0")
            <drawing: memory of sim:0: peak 1 MiB>
        """
        return draw_memory(self, device, capacity)

    def to_svg(self, path: str | Path) -> None:
        """Write the picture of the timeline to a file."""
        self.draw().save(path)

    def to_chrome(self, path: str | Path) -> None:
        """Write the timeline to a file that https://ui.perfetto.dev shows.

        Args:
            path: Ends in ".json", or in ".json.gz" to be compressed.
        """
        write_trace(self, path)

    @classmethod
    def from_chrome(cls, path: str | Path) -> Timeline:
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
        record = read_trace(path)
        return cls(
            record.spans, record.blocks, record.assumptions, record.label
        )
