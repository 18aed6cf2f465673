"""The commands that tell of this machine, one in a file.

``devices`` -- what this machine has;
``step`` -- one data-parallel step on its devices;
``calibrate`` -- this machine, measured as a preset.

``parser`` is what all commands of ``python -m dpkit`` share, those that run a
script, too (``dpkit/runs/commands``).
"""
