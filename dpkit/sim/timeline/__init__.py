"""Timelines: who did what, when; and how they are drawn.

``timeline`` -- the timeline itself: begin here;
``summary`` -- its sums: busy, idle, overlapped;
``gantt`` -- its picture, of the ``bars`` that can be seen;
``memory_chart`` -- the picture of a device's memory;
``drawing`` -- what pictures are made of, here and in dpbook;
``chrome`` -- files for Perfetto, written and read;
``kineto`` -- files of torch.profiler, read.
"""

from dpkit.sim.timeline.bars import Bar
from dpkit.sim.timeline.gantt import draw_timeline
from dpkit.sim.timeline.memory_chart import history
from dpkit.sim.timeline.summary import DeviceTimes, covered
from dpkit.sim.timeline.timeline import Timeline

__all__ = [
    "Bar",
    "DeviceTimes",
    "Timeline",
    "covered",
    "draw_timeline",
    "history",
]
