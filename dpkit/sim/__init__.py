"""Simulated devices: ``sim:0``, ``sim:1``, … are devices of torch."""

import torch

from dpkit.sim.configuration import configure, hold_on_gpu, machine
from dpkit.sim.recording import current_machine, label, meet, now, trace
from dpkit.sim.streams import beside
from dpkit.sim.supported import check_torch_version

__all__ = [
    "beside",
    "configure",
    "hold_on_gpu",
    "label",
    "machine",
    "meet",
    "now",
    "current_machine",
    "register",
    "trace",
]


def register() -> None:
    """Make ``sim:0``, ``sim:1``, … devices of torch; again is no harm.

    Raises:
        RuntimeError: this torch is too old, or lacks what simulated devices
            need, or another backend holds torch's place for one. Nothing of
            torch is changed then.
    """
    check_torch_version(torch.__version__)
    try:
        # Here, not above: it imports private names, which may change.
        from dpkit.sim.patches import apply_all
    except ImportError as error:
        raise RuntimeError(
            "simulated devices do not fit this torch (torch: "
            f"{torch.__version__}, missing: {error}); "
            'devices(kind="cpu") needs none of it'
        ) from error
    apply_all()
