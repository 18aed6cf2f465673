"""Which devices are simulated, and which one a name means.

``configuration`` -- the hardware, its clock and memory: begin here;
``names`` -- plain "sim", a number, the accelerator;
``random_states`` -- generators of random numbers, which change with a rank.
"""

from dpkit.sim.devices.configuration import (
    DEVICES_OF_TORCH,
    Simulation,
    hold_on_gpu,
    machine,
    simulation,
)
from dpkit.sim.devices.names import (
    current_device,
    device_count,
    device_of,
    set_device,
)
from dpkit.sim.devices.random_states import RandomStates

__all__ = [
    "DEVICES_OF_TORCH",
    "RandomStates",
    "Simulation",
    "current_device",
    "device_count",
    "device_of",
    "hold_on_gpu",
    "machine",
    "set_device",
    "simulation",
]
