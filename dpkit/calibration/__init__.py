"""Measure the hardware at hand, as presets that ``configure`` can load.

By microbenchmarks alone: products of matrices, elementwise operations and
copies over sizes, and operations so small that only their issue counts. No
network is trained for it, so training steps can test what comes out
(``dpkit.lab.limits.predictions``).
"""

from dpkit.calibration.calibrate import calibrate
from dpkit.calibration.conditions import doubts, load
from dpkit.calibration.presets import Calibration
from dpkit.calibration.provenance import (
    cpu_name,
    device_name,
    memory_bytes,
    provenance,
)

__all__ = [
    "Calibration",
    "calibrate",
    "cpu_name",
    "device_name",
    "doubts",
    "load",
    "memory_bytes",
    "provenance",
]
