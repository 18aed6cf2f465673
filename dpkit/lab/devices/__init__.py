"""What the chapter ``devices`` runs and checks.

``profiling`` -- the timeline of a real run.
"""
