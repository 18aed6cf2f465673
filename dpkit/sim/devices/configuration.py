"""Which hardware is simulated, and what has come of it: clock and memory."""

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import inf
from threading import local
from typing import Any, cast

import torch

from dpkit.accelerator import real_devices
from dpkit.sim.clock.clock import Clock
from dpkit.sim.clock.interface import ClockInterface
from dpkit.sim.hardware import Accelerator, Host, Link
from dpkit.sim.hardware.clusters import Cluster, cluster
from dpkit.sim.memory.accounting import Memory, size
from dpkit.sim.memory.garbage import collect_garbage, forget_last_error
from dpkit.units import check_number

BACKINGS = ("cpu", "meta", "cuda:0")
LASTING = ("num_devices", "backing")  # a tensor is of no use under others
# torch keeps the number of a device in 8 bits (c10/core/Device.h: int8_t).
DEVICES_OF_TORCH = 128


class Simulation:
    """The simulated machine: there is one in a process."""

    ranks_run = False
    races: Any = None  # what looks for them, in a trace that does
    graph: Any = None  # what notes the operators that a CUDA graph captures
    timeline: Any = None  # that of the trace that runs
    first_device = 0  # what plain "sim" means in a thread that has not chosen

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings  # the arguments of configure
        # Whether simulated devices stand for GPUs that there are too few of;
        # and whether the user has said what holds the values.
        self.replaces_gpus = self.backing_is_chosen = False
        self.is_for_a_block = False  # whether its settings are those of one
        self._thread = local()
        # In the process of a rank that is one, another stands in for it.
        self.clock: ClockInterface[Any] = Clock(_cluster(settings))
        self.memory = Memory(
            settings["num_devices"], capacity=_capacity(settings)
        )
        self.backing = _backing(settings)  # the device that holds the values
        self.holder = self.backing.type  # its kind: "cpu", "meta" or "cuda"

    @property
    def whole_clock(self) -> Clock:
        """The clock with all that it can do, where it is in this process.

        In the process of a rank it is not: see ``dpkit.sim.clock.interface``.
        """
        return cast("Clock", self.clock)

    @property
    def current_device(self) -> int:
        """What plain "sim" means, in this thread of Python."""
        return getattr(self._thread, "current_device", self.first_device)

    @current_device.setter
    def current_device(self, index: int) -> None:
        self._thread.current_device = index

    # What becomes of tensors that are alive:
    #
    #     other rates, links or hosts     they stay
    #     a setting in LASTING differs    the change is refused
    #     the memory is too small         the change is refused
    #     apart, from values to "meta"   they stay, and a new memory begins

    def change(self, settings: dict[str, Any], apart: bool = False) -> None:
        """Change to other settings, with a new clock."""
        if self.ranks_run or self.memory.blocks is not None:
            what = "ranks run" if self.ranks_run else "a trace is running"
            raise RuntimeError(f"the hardware cannot change while {what}")
        clock = Clock(_cluster(settings))
        capacity = _capacity(settings)
        backing = _backing(settings)
        loses_values = settings["backing"] == "meta" != self.backing.type
        if not (apart and loses_values):
            self._check_alive(settings, capacity)
        if any(settings[k] != self.settings[k] for k in LASTING):
            self.memory = Memory(settings["num_devices"], capacity=capacity)
        self.memory.capacity = capacity
        self.settings = settings
        self.clock = clock
        self.backing = backing
        self.holder = backing.type

    def _check_alive(self, settings: dict[str, Any], capacity: int) -> None:
        """Refuse settings that the tensors alive would not outlast."""
        if not self._in_the_way(settings, capacity):
            return
        collect_garbage(self.memory)
        if self._in_the_way(settings, capacity):
            forget_last_error()
            collect_garbage(self.memory)
        reason = self._in_the_way(settings, capacity)
        if reason:
            raise RuntimeError(reason)

    def _in_the_way(self, settings: dict[str, Any], capacity: int) -> str:
        """Return why tensors that are alive would not outlast a change."""
        if not any(self.memory.live):
            return ""
        most = max(self.memory.live)
        for name in (*LASTING, "memory_bytes"):
            old = self.settings[name]
            new = settings[name]
            if old != new or (name == "memory_bytes" and most > capacity):
                return (
                    f"{name} cannot change while tensors live on simulated "
                    f"devices ({name}: {old} to {new or capacity}, alive: "
                    f"{size(sum(self.memory.live))}); delete them, or restart"
                )
        return ""


def _cluster(settings: dict[str, Any]) -> Cluster:
    others = ("backing", "memory_bytes")
    found = cluster(**{k: v for k, v in settings.items() if k not in others})
    has_values = settings["backing"] != "meta"
    if found.num_devices > DEVICES_OF_TORCH and has_values:
        raise ValueError(
            "torch does not number so many devices (num_devices: "
            f"{found.num_devices}, at most: {DEVICES_OF_TORCH}); with "
            'backing="meta" there may be more, for ranks that are alike'
        )
    return found


def _capacity(settings: dict[str, Any]) -> int:
    capacity = settings["memory_bytes"]
    if capacity is None:
        return _cluster(settings).accelerator.memory_bytes
    check_number("memory_bytes", capacity)
    if not 1 <= capacity < inf:
        raise ValueError(
            "memory_bytes must be positive and finite "
            f"(memory_bytes: {capacity})"
        )
    return int(capacity)


def _backing(settings: dict[str, Any]) -> torch.device:
    name = settings["backing"]
    if name not in BACKINGS:
        raise ValueError(
            f"unknown backing (backing: {name!r}, known: "
            f"{', '.join(BACKINGS)})"
        )
    if name != "cuda:0":
        return torch.device(name)
    gpus = real_devices()
    if not gpus:
        raise RuntimeError(
            f"there is no GPU to hold the values (backing: {name!r})"
        )
    return gpus[0]


def configure(
    num_devices: int = 8,
    accelerator: str | Accelerator = "v100",
    link: str | Link = "nvlink2",
    backing: str | None = None,
    hosts: str = "one",
    slow: Mapping[int, float] | None = None,
    memory_bytes: int | None = None,
    host: str | Host = "eager",
    ranks_per_node: int | None = None,
    network: str | Link = "ethernet100",
    devices_per_switch: int | None = None,
) -> None:
    """Choose the hardware that is simulated; its clock starts at zero.

    What is not given takes its default. Rates and links may change while
    tensors live on simulated devices; their number, what holds the values,
    and the memory may not. If tensors are in the way of the change, the
    variables that the last error shown keeps for ``%debug`` are deleted.

    A preset is a name in ``dpkit.sim.hardware``, the path of a file that
    ``python -m dpkit calibrate`` wrote, or an object.

    With ``backing="meta"`` a tensor of at most 100,000 integers or booleans
    has its values, so that programs can count, vote and choose by them. It
    loses them when something is written to it that comes from floating-point
    values or is drawn at random, and reading it is refused. To go on, as with
    the counts of a router, overwrite all of it with values:
    ``counts.copy_(torch.tensor([…]))``. A view is a part of another tensor,
    and stays without values; take ``counts = counts.clone()`` before.

    Args:
        num_devices: How many devices there are, at most 128: so many have a
            number in torch. With ``backing="meta"`` there may be more, for
            ranks of ``dpkit.sim.launch`` that are alike.
        accelerator: What they are: a preset in ``ACCELERATORS``.
        link: What joins them: a preset in ``LINKS``.
        backing: What holds the values: "cpu"; "meta", which has shapes and
            times but no values, except for small integers; or "cuda:0", one
            GPU for all devices. None means the CPU or, once ``dpkit.devices``
            has given simulated devices because there are too few GPUs, the
            GPU.
        hosts: "one" Python for all devices, as with ``DataParallel``; or one
            "per_device", as with ``DistributedDataParallel``.
        slow: Rank -> how many times as long its operations take.
        memory_bytes: The memory of each device; None: the accelerator's.
        host: What issuing work costs: a preset in ``HOSTS``.
        ranks_per_node: How many devices a node has; None: all are on one.
        network: What joins the nodes: a preset in ``LINKS``. Each device has
            its own port on it.
        devices_per_switch: How many devices share a path to their host: 2 as
            in a DGX-1, 1 where each has its own; None: all of a node do.

    Raises:
        RuntimeError: tensors live on simulated devices, and a change would
            need them gone; or a trace is running, or ranks are.

    Example:
        >>> dpkit.sim.configure(accelerator="a100", link="nvlink3")
        >>> with dpkit.Timer(dpkit.devices(2, kind="sim")) as timer:
        ...     pass
        >>> timer.clock
        'simulated (a100, nvlink3)'
        >>> dpkit.sim.configure()
    """
    settings = dict(locals())
    settings["backing"] = _chosen_backing(backing)
    simulation.change(settings)
    simulation.backing_is_chosen = backing is not None


DEFAULTS: dict[str, Any] = {
    name: parameter.default
    for name, parameter in inspect.signature(configure).parameters.items()
} | {"backing": "cpu"}
simulation = Simulation(dict(DEFAULTS))


def _chosen_backing(backing: str | None) -> str:
    """Return what holds the values, where None stands for the default."""
    if backing is None:
        return "cuda:0" if simulation.replaces_gpus else "cpu"
    return backing


def hold_on_gpu() -> None:  # only on CUDA
    """Hold the values on the GPU, because there are too few GPUs.

    They stay where they are if the user has said what holds them, if there are
    some already, or if the hardware cannot change now.
    """
    is_busy = simulation.ranks_run or simulation.memory.blocks is not None
    has_values = any(simulation.memory.live)
    if simulation.backing_is_chosen or simulation.is_for_a_block:
        return
    if not (simulation.replaces_gpus or is_busy or has_values):
        simulation.change({**simulation.settings, "backing": "cuda:0"})
        simulation.replaces_gpus = True


@contextmanager
def machine(**changes: Any) -> Iterator[None]:
    """Change some of the hardware for a block; its clock starts at zero.

    After the block all is as before, and so is the time on the clock. What a
    block leaves on devices that are gone after it cannot be used any more.
    With ``backing="meta"`` the block has a separate memory: tensors outside
    take no room in it, and cannot be used there.

    Args:
        changes: Arguments of :func:`configure`; the others stay as they are.

    Raises:
        RuntimeError: tensors live on simulated devices, and a change would
            need them gone.

    Example:
        >>> x = torch.ones(1000, 1000, device=dpkit.devices(1, "sim")[0])
        >>> for accelerator in ("v100", "h100"):
        ...     with (
        ...         dpkit.sim.machine(accelerator=accelerator),
        ...         dpkit.Timer([x.device]) as timer,
        ...     ):
        ...         y = x @ x
        ...     print(f"{1e6 * timer.seconds:.0f} µs, simulated")
        157 µs, simulated
        58 µs, simulated
    """
    before = simulation.settings
    for name in changes:
        if name not in before:
            raise TypeError(
                f"unknown setting (setting: {name!r}, known: "
                f"{', '.join(before)})"
            )
    settings = {**before, **changes}
    settings["backing"] = _chosen_backing(settings["backing"])
    kept = dict(vars(simulation))
    device = simulation.current_device
    capacity = simulation.memory.capacity
    simulation.change(settings, apart=True)
    simulation.is_for_a_block = True
    try:
        yield
    finally:
        vars(simulation).update(kept)
        simulation.current_device = device
        simulation.memory.capacity = capacity
