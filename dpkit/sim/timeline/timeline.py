"""A timeline: who did what, when.

It is data (:class:`Record`) that can add itself up, draw itself, and go to
and come from files that https://ui.perfetto.dev shows. Times are seconds
since the timeline began.
"""

from dataclasses import dataclass
from pathlib import Path

from dpkit.sim.clock.record import Record
from dpkit.sim.timeline.chrome import read_trace, write_trace
from dpkit.sim.timeline.drawing import Drawing
from dpkit.sim.timeline.gantt import draw_timeline
from dpkit.sim.timeline.memory_chart import draw_memory
from dpkit.sim.timeline.summary import Summary, summarize
from dpkit.units import show_seconds


@dataclass(repr=False)
class Timeline(Record):
    """What happened on every device and host, in time.

    Attributes:
        spans: What took time; of each stream in the order of time.
        blocks: The memory that was allocated, in the order of issue.
        assumptions: What the times rest on, a sentence each.
        label: "simulated (v100, nvlink2)" or "measured (NVIDIA H200)".
        races: What ``trace(races=True)`` has found; None in other traces.

    Example:
        >>> from dpkit.sim.clock.record import Span
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
        if self.races is not None:
            facts.append(f"races: {len(self.races)}")
        return f"<timeline: {', '.join(filter(None, facts))}>"

    def _repr_svg_(self) -> str:
        return self.draw().svg

    def summary(self) -> Summary:
        """Add up where the time of each device and host went."""
        return summarize(self)

    def draw(self, least_seconds: float = 0.0) -> Drawing:
        """Draw a row for each stream and a bar for each span.

        The axis covers ``least_seconds`` at the least, so that two timelines
        can be drawn to one scale.
        """
        return draw_timeline(self, least_seconds)

    def draw_memory(self, device: str) -> Drawing:
        """Draw the memory of a device, such as "sim:0", in order of issue."""
        return draw_memory(self, device)

    def to_svg(self, path: str | Path) -> None:
        """Write the picture of the timeline to a file."""
        self.draw().save(path)

    def to_chrome(self, path: str | Path) -> None:
        """Write a file for Perfetto: ".json", or ".json.gz" if compressed."""
        write_trace(self, path)

    @classmethod
    def from_chrome(cls, path: str | Path) -> "Timeline":
        """Read a file of ``to_chrome``, or of ``torch.profiler``.

        From a file of ``export_chrome_trace`` it takes what ran on the
        devices, the calls that launched it and that waited for it, and the
        outermost operations on the host. The file may be compressed by gzip.

        Raises:
            ValueError: the file is no trace, or nothing of this is in it.
        """
        return cls(**vars(read_trace(path)))
