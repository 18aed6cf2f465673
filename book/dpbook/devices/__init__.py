"""What the chapter ``devices`` runs and checks.

``profiling`` -- the timeline of a real run;
``latency`` -- the time of one image, which is the time of its launches.
"""
