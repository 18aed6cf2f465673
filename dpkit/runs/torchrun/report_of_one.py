"""What the report says of a process that drives all devices by itself."""

from collections import Counter, defaultdict

from dpkit.runs.torchrun.section import Section, count_columns
from dpkit.sim.clock import Span
from dpkit.sim.timeline import Timeline
from dpkit.tables import table
from dpkit.units import show_seconds

_FROM, _TO_HOST = "copy from ", "copy to host"


def of_process(spans: list[Span], seconds: float) -> str:
    """Return what the process does: it issues work, or waits for devices.

    Args:
        spans: What hosts and devices do, in some time.
        seconds: How long that is.
    """
    hosts = Timeline(spans=spans).summary().hosts.values()
    busy = sum(host.busy for host in hosts)
    waiting = sum(host.waiting for host in hosts)
    return (
        f"the process issues work for {busy / seconds:.0%} of it, and waits "
        f"for GPUs for {waiting / seconds:.0%}"
    )


def copied_between(spans: list[Span], steps: int) -> Section:
    """Return what is copied between devices, and to and from the host.

    Args:
        spans: Those of the whole run.
        steps: How many steps of the optimizer it has.
    """
    times: Counter[tuple[str, str]] = Counter()
    sizes: Counter[tuple[str, str]] = Counter()
    for span in spans:
        if not span.device.startswith("sim:"):
            continue  # what the host pays for a copy
        if span.name.startswith(_FROM):
            way = span.name.removeprefix(_FROM), span.device
            times[way] += 1
            sizes[way] += span.num_bytes
        elif span.name == _TO_HOST:
            times[span.device, "host"] += 1
            sizes[span.device, "host"] += span.num_bytes
    rows = []
    for way, count in sorted(times.items()):
        rows.append(
            {
                "copied from": _called(way[0]),
                "to": _called(way[1]),
                **count_columns(count, sizes[way], steps),
            }
        )
    return Section(
        "What is sent", "counted", [], table(rows) if rows else None
    )


def _called(device: str) -> str:
    kind, _, number = device.partition(":")
    return f"GPU {number}" if kind == "sim" else "the host"


def busiest(by_step: list[dict[int, float]]) -> Section:
    """Return which device the others wait for.

    Args:
        by_step: For each step, how long each device computes, in seconds.
    """
    most: Counter[int] = Counter()
    lost: defaultdict[int, float] = defaultdict(float)
    for seconds in by_step:
        slowest = max(seconds, key=lambda device: seconds[device])
        most[slowest] += 1
        lost[slowest] += sum(seconds[slowest] - s for s in seconds.values())
    if not any(lost.values()):
        return Section("", "", [])
    worst = max(lost, key=lambda device: lost[device])
    line = (
        f"most for GPU {worst}: it computes longest in {most[worst]} of "
        f"{len(by_step)} steps; the other GPUs compute "
        f"{show_seconds(lost[worst])} less, added up"
    )
    return Section(
        "Which GPU the others wait for, by step", "modelled", [line]
    )
