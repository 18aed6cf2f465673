"""Measure this machine, as presets that ``configure`` can load.

The microbenchmarks train no network, so training steps can test the presets.

``calibrate`` -- begin here: all of it together;
``probes`` -- what is timed, by the ``stopwatch``;
``fitting`` -- times that grow with a size, as a line;
``fitted_presets`` -- from lines to presets;
``predictions`` -- training steps, simulated by a preset and measured;
``conditions`` -- the machine, the date, and how busy it was.
"""

from dpkit.calibration.conditions import (
    cpu_name,
    device_name,
    doubts,
    machine_load,
    memory_bytes,
    provenance,
)
from dpkit.calibration.fitted_presets import Calibration
from dpkit.calibration.predictions import (
    CASES,
    Prediction,
    predictions_table,
    step_seconds,
)

__all__ = [
    "CASES",
    "Calibration",
    "Prediction",
    "cpu_name",
    "device_name",
    "doubts",
    "machine_load",
    "memory_bytes",
    "predictions_table",
    "provenance",
    "step_seconds",
]
