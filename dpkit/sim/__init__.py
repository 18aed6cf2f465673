"""Simulated devices: ``sim:0``, ``sim:1``, … are devices of torch.

Begin with ``tensors/tensor.py``: what happens in ``x + y``, step by step. The
rooms, each with a docstring that says what is in it:

``devices/`` -- the hardware that is simulated, and which device a name means;
``memory/`` -- live and peak bytes, and what is freed before they are judged;
``streams/`` -- streams, events, and what is sent between devices;
``operators/`` -- what is known of an operator of torch, and what it costs;
``tensors/`` -- the simulated tensor, and what charges the clock for it;
``kernels/`` -- what computes operations that are not run by the CPU's kernel;
``parallel/`` -- ``torch.nn.parallel``: one process, several devices;
``races/`` -- what nothing orders, for a trace that looks for it;
``places`` -- the lines of the program that races and warnings name;
``graphs`` -- CUDA graphs: a step that is launched at once;
``tracing`` -- what happened in a block of code, as a timeline;
``cuda_names/`` -- ``cuda`` means the simulated devices, in a block;
``changes/`` -- how torch is changed, and changed back;
``patches`` -- all that is changed when sim is registered, in one table;
``torch_sim`` -- the module ``torch.sim``.
"""

import re
import warnings
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

import torch

from dpkit.sim.changes.mixed_backends import why_apart
from dpkit.sim.devices.configuration import configure, hold_on_gpu, machine
from dpkit.sim.streams.streams import name_stream, overlapped
from dpkit.sim.tracing import current_machine, label, meet, now, trace
from dpkit.theory.hardware import (
    ACCELERATORS,
    HOSTS,
    LINKS,
    Accelerator,
    Host,
    Link,
)
from dpkit.theory.hardware.clusters import Cluster
from dpkit.theory.timeline.timeline import Timeline

__all__ = [
    "ACCELERATORS",
    "HOSTS",
    "LINKS",
    "Accelerator",
    "Cluster",
    "Host",
    "Link",
    "Timeline",
    "as_cuda",
    "configure",
    "hold_on_gpu",
    "label",
    "launch",
    "machine",
    "meet",
    "name_stream",
    "now",
    "overlapped",
    "current_machine",
    "register",
    "trace",
    "why_apart",
]

launch: Callable[..., list[Any]]  # dpkit.ranks.launch, by __getattr__
TRIED = ((2, 11), (2, 13), (2, 15))  # all tests of dpkit.sim were run on these


if TYPE_CHECKING:
    from dpkit.sim.cuda_names.patches import as_cuda
else:  # or any name would be one of the package

    def __getattr__(name: str) -> Any:
        """Import ``launch`` or ``as_cuda`` when it is first asked for."""
        if name == "launch":
            return import_module("dpkit.ranks").launch
        if name == "as_cuda":
            return import_module("dpkit.sim.cuda_names.patches").as_cuda
        raise AttributeError(f"module 'dpkit.sim' has no attribute {name!r}")


def register() -> None:
    """Make ``sim:0``, ``sim:1``, … devices of torch.

    A second call does nothing. ``dpkit.devices`` calls it when it is first
    asked for simulated devices.

    Raises:
        RuntimeError: this torch does not fit, and is left unchanged.

    Example:
        >>> dpkit.sim.register()
        >>> x = torch.ones(2, device="sim:1")
        >>> x + x
        tensor([2., 2.], device='sim:1')
    """
    check_torch_version(torch.__version__)
    try:
        # Here, not above: it imports private names, which may change.
        from dpkit.sim.changes.change import apply_all
        from dpkit.sim.patches import PATCHES
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
