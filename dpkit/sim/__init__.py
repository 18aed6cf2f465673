"""Simulated devices: ``sim:0``, ``sim:1``, … are devices of torch.

Begin with ``tensor.py``: what happens in ``x + y``, step by step.

- What changes in torch when sim is registered: ``patches.py``, one table.
  The functions that it puts into torch are in ``kernels/``, ``backward``,
  ``modules``, ``storages``, ``random_numbers``, ``device_names``,
  ``sending`` and ``refusals``. ``torch.sim`` is ``torch_sim.py``.
  What ranks need besides, and nothing else does: ``needed.py``.
- GPUs beside simulated devices, in one process: ``both_kinds.py``.
- Where operations and copies are charged: ``charge.py``. What they compute:
  ``flops.py``, and in which numbers: ``precision.py``. Where memory is
  counted: ``memory.py``; what is freed before it is judged: ``garbage.py``.
- Which devices may mix in an operation, and which arguments it writes to:
  ``operations.py``. What Python sees of a tensor: ``behaviour.py``.
- The hardware that is simulated: ``configuration.py``; its streams:
  ``streams.py``; what happened on it: ``tracing.py``; what nothing orders
  there, for a trace that looks for it: ``races/``.
"""

import re
import warnings
from collections.abc import Callable
from typing import Any

import torch

from dpkit.sim.both_kinds import why_apart
from dpkit.sim.configuration import configure, hold_on_gpu, machine
from dpkit.sim.needed import check_ranks as check_ranks
from dpkit.sim.streams import issued_beside as beside
from dpkit.sim.streams import name_stream
from dpkit.sim.tracing import current_machine, label, meet, now, trace

__all__ = [
    "beside",
    "configure",
    "hold_on_gpu",
    "label",
    "launch",
    "machine",
    "meet",
    "name_stream",
    "now",
    "current_machine",
    "register",
    "trace",
    "why_apart",
]

launch: Callable[..., list[Any]]  # dpkit.ranks.launch; dpkit puts it here
TRIED = ((2, 11), (2, 13), (2, 15))  # all tests of dpkit.sim were run on these


def register() -> None:
    """Make ``sim:0``, ``sim:1``, … devices of torch.

    A second call does nothing.

    Raises:
        RuntimeError: this torch does not fit, and is left unchanged.
    """
    check_torch_version(torch.__version__)
    try:
        # Here, not above: it imports private names, which may change.
        from dpkit.sim.patches import PATCHES
        from dpkit.sim.patching import apply_all
    except ImportError as error:
        raise RuntimeError(
            "simulated devices do not fit this torch (torch: "
            f"{torch.__version__}, missing: {error}); "
            'devices(kind="cpu") needs none of it'
        ) from error
    apply_all(PATCHES)


def check_torch_version(version: str) -> None:
    """Refuse a torch that is too old; warn about one that is new."""
    # On a newer torch the probes of ``patches`` decide.
    major, minor = (int(n) for n in re.findall(r"\d+", version)[:2])
    tried = ", ".join(f"{a}.{b}" for a, b in TRIED)
    if (major, minor) < TRIED[0]:
        raise RuntimeError(
            "this torch is older than those that simulated devices were "
            f"tried on (torch: {version}, tried: {tried}); install a newer "
            'one, or ask for devices(kind="cpu")'
        )
    if (major, minor) > TRIED[-1]:
        warnings.warn(
            "this torch is newer than those that simulated devices were "
            f"tried on (torch: {version}, tried: {tried}); what they "
            "need of it is looked for",
            stacklevel=2,
        )
