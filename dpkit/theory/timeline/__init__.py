"""Timelines: who did what, when; and how they are drawn.

``timeline`` -- the timeline itself: begin here;
``summary`` -- its sums: busy, idle, overlapped;
``gantt``, ``bars``, ``memory_chart`` -- its pictures, from ``drawing``;
``chrome``, ``kineto`` -- files that others write or read.
"""
