"""What the chapter ``devices`` runs, draws and checks.

``pictures`` -- launches, and what they start;
``profiling`` -- the timeline of a real run;
``latency`` -- the time of one image, which is the time of its launches.
"""
