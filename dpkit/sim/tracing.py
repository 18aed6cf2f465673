"""What happens in a block of code, as a timeline: ``dpkit.sim.trace``.

While a trace runs, it also notes what memory is for: parameters, gradients,
activations, the optimizer's state, and the rest. It sees that after backward
and after an optimizer's step, by what they hold.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor

from dpkit.sim.clock.record import Block
from dpkit.sim.devices.configuration import simulation
from dpkit.sim.devices.names import full_device
from dpkit.sim.hardware import AS_FLOAT32, Accelerator
from dpkit.sim.hardware.clusters import Cluster
from dpkit.sim.memory.accounting import Allocation
from dpkit.sim.races import Races
from dpkit.sim.streams import sending
from dpkit.sim.timeline.timeline import Timeline

_ASSUMPTIONS = (
    "Work on the CPU, in Python and in loading data, takes no time; "
    "launching work on a device does.",
    "An operation takes the longer of its arithmetic and its traffic to "
    "memory, at the rates of the preset, and reads nothing from a cache.",
    "The streams of a device take turns: what has been ready for longest runs "
    "first, and nothing runs beside it except what is added up beside "
    "backward.",
    "A copy has its ports to itself, but for what a collective between nodes "
    "takes of those inside, and as much of a path as its rate needs; it costs "
    "the devices no compute.",
    "Nothing is done for the first time: libraries are loaded, memory has "
    "been allocated before, clocks are steady.",
)


def now(device: torch.device | None = None) -> float:
    """Return the seconds on the host's simulated clock.

    Args:
        device: The device whose host is meant; None: in a rank its own, else
            the latest of all.

    Example:
        >>> zero = dpkit.devices(1, "sim")[0]
        >>> before = dpkit.sim.now()
        >>> x = torch.ones(3, device=zero)  # issued, which takes 8 µs
        >>> round(1e6 * (dpkit.sim.now() - before))
        8
    """
    if device is None:
        return simulation.clock.now(sending.thread.rank)
    return simulation.clock.now(full_device(device).index)


def label() -> str:
    """Return what stands next to simulated times: the presets' names.

    Example:
        >>> with dpkit.sim.machine(accelerator="a100", link="nvlink3"):
        ...     dpkit.sim.label()
        'simulated (a100, nvlink3)'
    """
    text = f"simulated ({simulation.clock.cluster.name})"
    count = simulation.clock.ranks_alike
    return f"{text}, one rank of {count}" if count else text


def current_machine() -> object:
    """Return what stands for the machine that is simulated now.

    Example:
        >>> before = dpkit.sim.current_machine()
        >>> with dpkit.sim.machine(link="pcie3"):
        ...     dpkit.sim.current_machine() is before
        False
    """
    return simulation.clock


def meet(devices: Sequence[torch.device]) -> None:
    """Make the hosts of ``devices`` wait for the last of them.

    Example:
        >>> with dpkit.sim.machine(num_devices=2, hosts="per_device"):
        ...     devices = dpkit.devices(2, "sim")
        ...     x = torch.ones(3, device=devices[1])  # its host is busy: 8 µs
        ...     early = dpkit.sim.now(devices[0])
        ...     dpkit.sim.meet(devices)
        ...     early, round(1e6 * dpkit.sim.now(devices[0]))
        (0.0, 8)
    """
    indices = [full_device(device).index for device in devices]
    simulation.whole_clock.hosts.catch_up(indices)
    if simulation.races is not None:
        simulation.races.meet(indices)


@contextmanager
def trace(races: bool = False) -> Iterator[Timeline]:
    """Collect what the simulated devices do in a block, as a timeline.

    The timeline is complete when the block has ended; its seconds begin at
    the start of the block. It draws itself in a notebook; ``summary()`` adds
    it up, ``to_chrome(path)`` writes it for Perfetto.

    With ``races`` the timeline lists the pairs of uses of one memory that
    nothing orders, if one of the two writes. It also lists memory that was
    freed while another stream used it, without ``record_stream``, and that
    another tensor may then have got. On a GPU such a program may compute with
    wrong values. What was done before the block counts as done. On the CPU
    the trace sees what PyTorch does, but neither NumPy nor what is printed.

    Args:
        races: Whether to look for races, which takes time on the CPU, and
            none on the simulated clock.

    Raises:
        RuntimeError: another trace is running.

    Example:
        >>> zero, one = dpkit.devices(2, "sim")
        >>> with dpkit.sim.trace() as timeline:
        ...     x = torch.ones(500, 300, device=zero).to(one)
        >>> [span.name for span in timeline.spans if span.kind == "copy"]
        ['copy to sim:1', 'copy from sim:0']

        A copy in another stream does not wait for what it copies:

        >>> with dpkit.sim.trace(races=True) as timeline:
        ...     x = torch.ones(500, 300, device=zero)
        ...     with torch.sim.stream(torch.sim.Stream(zero)):
        ...         y = x.to(one)
        >>> race = timeline.races[0]
        >>> race.first.name, race.first.what, race.first.stream
        ('ones', 'writes', 'compute')
        >>> race.second.name, race.second.what
        ('copy to sim:1', 'reads')
    """
    clock = simulation.whole_clock
    memory = simulation.memory
    if memory.blocks is not None:
        raise RuntimeError("a trace is running already")
    order = memory.order
    memory.blocks = memory.alive()
    timeline = Timeline(spans=clock.record(), label=label())
    simulation.timeline = timeline
    try:
        with looking_for_races(timeline) if races else nullcontext():
            yield timeline
    finally:
        clock.stop_recording()
        timeline.blocks += [
            block_of(made, order, memory.order) for made in memory.blocks
        ]
        timeline.assumptions += _assumptions()
        memory.blocks = simulation.timeline = None


@contextmanager
def looking_for_races(timeline: Timeline) -> Iterator[None]:
    """Collect the races of a block in a timeline."""
    races = simulation.races = Races(simulation.whole_clock)
    timeline.races = races.found
    try:
        with watching_host():
            yield
    finally:
        races.flush()
        simulation.races = None


def watching_host() -> AbstractContextManager[None]:
    """Look at what this thread does on the CPU, where races are looked for."""
    races = simulation.races
    return nullcontext() if races is None else races.watching_host()


def block_of(made: Allocation, first: int, last: int) -> Block:
    """Return what a trace notes of memory; the order begins with the trace."""
    # The trace saw orders 7 to 11. Allocated at 9, freed at 12: 2, None.
    # Allocated at 3, before it, and freed at 8: -1, 1.
    freed = made.freed
    if freed is not None:
        freed = None if freed >= last else freed - first
    allocated = max(made.allocated - first, -1)
    device = f"sim:{made.device}"
    return Block(
        device,
        num_bytes=made.num_bytes,
        category=made.category,
        allocated=allocated,
        freed=freed,
    )


def _assumptions() -> list[str]:
    """Return what the times rest on, a sentence each."""
    cluster = simulation.clock.cluster
    host = cluster.host
    hosts = (
        "One process launches all work."
        if cluster.hosts == "one"
        else "Each device has a process of its own."
    )
    issue = (
        f"A launch takes {1e6 * host.launch_seconds:g} µs for an operation, "
        f"{1e6 * host.backward_launch_seconds:g} µs in backward, "
        f"{1e6 * host.view_seconds:g} µs for a view."
    )
    rates = _rates_of_float32(cluster.accelerator)
    return [hosts, issue, _paths(cluster), *_ASSUMPTIONS, *rates]


def _rates_of_float32(accelerator: Accelerator) -> list[str]:
    """Return which dtypes go at the rate of float32, if there are any."""
    known = accelerator.flops_per_second
    missing = [d for d in AS_FLOAT32 if d not in known and d != "tf32"]
    if not missing:
        return []
    return [
        f"Products in {', '.join(missing)} go at the rate of float32, "
        f"because there is no other ({accelerator.name})."
    ]


def _paths(cluster: Cluster) -> str:
    """Return what copies pass over, in words."""
    path = (
        "Devices reach each other directly, limited by their own links alone; "
        "all copies to and from the host share one path."
        if cluster.link.peer_to_peer
        else "All copies between devices, and to the host, share one path."
    )
    if cluster.devices_per_switch is not None:
        path += f" Each {cluster.devices_per_switch} devices have their own."
    if cluster.ranks_per_node is not None:
        path += (
            f" That holds inside a node of {cluster.ranks_per_node}; to other "
            f"nodes each device has a port of its own ({cluster.network.name})"
            ", limited by that alone."
        )
    return path


def tracing() -> bool:
    """Return whether a trace records what memory is for."""
    return simulation.memory.blocks is not None


def mark_results(out: Any) -> None:
    """Take what an operation made for activations, if autograd looks on."""
    if torch.is_grad_enabled() and not simulation.clock.hosts.in_backward:
        simulation.memory.mark(out, "activations", before="other")


def mark_leaves(tensors: list[Tensor]) -> None:
    """Take leaves for parameters, and what backward left for gradients."""
    simulation.memory.mark(tensors, "parameters")
    simulation.memory.mark([tensor.grad for tensor in tensors], "gradients")


def mark_optimizer(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    """Mark what an optimizer holds; it calls this after a step."""
    if tracing():
        for group in optimizer.param_groups:
            mark_leaves(group["params"])
        state = list(optimizer.state.values())
        simulation.memory.mark(state, "optimizer state")
