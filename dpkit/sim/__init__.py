"""Simulated devices: ``sim:0``, ``sim:1``, … are devices of torch.

Begin with ``tensors/tensor.py``: what happens in ``x + y``, step by step. Each
room has a docstring that says what is in it, and the names that other parts of
dpkit ask for. Three rooms need no torch, and also run in a browser:

``hardware/`` -- accelerators, links, hosts; what work costs;
``clock/`` -- how time passes on them;
``timeline/`` -- what happened, as a picture and in files.

The others change torch, or run on it:

``devices/`` -- the hardware that is simulated, and which device a name means;
``memory/`` -- live and peak bytes, and what is freed before they are judged;
``streams/`` -- streams, events, and what ``torch.distributed`` may send;
``operators/`` -- what is known of an operator of torch, and what it costs;
``tensors/`` -- the simulated tensor, and what charges the clock for it;
``kernels/`` -- what computes operations that are not run by the CPU's kernel;
``parallel/`` -- ``torch.nn.parallel``: one process, several devices;
``races/`` -- what nothing orders, for a trace that looks for it;
``containers`` -- the tensors of a call;
``places`` -- the lines of the program that races and warnings name;
``compiled`` -- what a program has given to ``torch.compile``;
``graphs`` -- CUDA graphs: a step that is launched at once;
``tracing`` -- what happened in a block of code, as a timeline;
``changes/`` -- how torch is changed, and changed back;
``patches`` -- all that is changed when sim is registered, in one table;
``torch_sim`` -- the module ``torch.sim``.

Two names, ``launch`` and ``as_cuda``, are defined above, in ``dpkit.runs``.
They are imported when a program asks for them.
"""

import re
import sys
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib import import_module
from typing import TYPE_CHECKING, Any

from dpkit.lazy import lazy_names

if TYPE_CHECKING:
    from dpkit.sim.devices.configuration import (
        configure,
        machine,
    )
    from dpkit.sim.hardware import (
        ACCELERATORS,
        HOSTS,
        LINKS,
        Accelerator,
        Host,
        Link,
    )
    from dpkit.sim.hardware.clusters import Cluster
    from dpkit.sim.streams.streams import name_stream, overlapped
    from dpkit.sim.timeline.timeline import Timeline
    from dpkit.sim.tracing import current_machine, label, meet, now, trace

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
]

TRIED = ((2, 11), (2, 13), (2, 15))  # all tests of dpkit.sim were run on these

_DEFINED_IN = {
    "ACCELERATORS": "dpkit.sim.hardware",
    "HOSTS": "dpkit.sim.hardware",
    "LINKS": "dpkit.sim.hardware",
    "Accelerator": "dpkit.sim.hardware",
    "Cluster": "dpkit.sim.hardware.clusters",
    "Host": "dpkit.sim.hardware",
    "Link": "dpkit.sim.hardware",
    "Timeline": "dpkit.sim.timeline.timeline",
    "configure": "dpkit.sim.devices.configuration",
    "label": "dpkit.sim.tracing",
    "machine": "dpkit.sim.devices.configuration",
    "meet": "dpkit.sim.tracing",
    "name_stream": "dpkit.sim.streams.streams",
    "now": "dpkit.sim.tracing",
    "overlapped": "dpkit.sim.streams.streams",
    "current_machine": "dpkit.sim.tracing",
    "trace": "dpkit.sim.tracing",
}
# Two names of users that stand above: what needs ranks and whole programs.
_DEFINED_ABOVE = {"as_cuda": "dpkit.runs", "launch": "dpkit.runs"}
as_cuda: Callable[..., AbstractContextManager[None]]
launch: Callable[..., list[Any]]

if not TYPE_CHECKING:  # or any name would be one of the package
    __getattr__, __dir__ = lazy_names(
        __name__, {**_DEFINED_IN, **_DEFINED_ABOVE}
    )
# Where torch is there, all at once: two threads that asked for two names would
# each wait for modules that the other has imported in half.
if "torch" in sys.modules:
    for _module in dict.fromkeys(_DEFINED_IN.values()):
        import_module(_module)


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
    import torch  # here, not above: hardware and clock need none of it

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
