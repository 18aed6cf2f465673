"""Which way to split, live: the map of the fastest, and the reader's point."""

from dataclasses import replace
from math import inf

from dpbook.explore.figure import Choice, LiveFigure, Number, Shown
from dpbook.explore.way_map import draw_map
from dpbook.formulas.sharding import peak_parts, update_peak
from dpbook.formulas.splits import ONE_DEVICE, estimate, seconds_by_way
from dpkit.theory.collectives.alpha_beta import FREE_HOST, ideal_cluster
from dpkit.theory.collectives.costs import Rates
from dpkit.theory.hardware.clusters import Cluster, cluster
from dpkit.theory.units import show_bytes, show_seconds

DEPTH = 8  # layers
WAY_WORDS = {
    ONE_DEVICE: "one device",
    "data": "data parallelism",
    "network": "the network in stages",
    "layer": "split layers",
}
FREE = ideal_cluster(1, Rates(0, 0))  # where nothing takes time


def show_decision(
    rows: int, width: int, devices: int, accelerator: str, link: str
) -> Shown:
    """Compare the ways to split eight dense layers, for one batch.

    Args:
        rows: The examples of the batch, over all devices.
        width: The values that go into each layer and come out of it.
        devices: How many there are.
        accelerator: A preset.
        link: A preset.
    """
    machine = cluster(devices, accelerator, link)
    times = seconds_by_way(
        rows=rows, width=width, depth=DEPTH, cluster=machine
    )
    room = machine.accelerator.memory_bytes
    needed = {way: _memory(way, rows, width, machine) for way in times}
    facts = []
    for way, seconds in times.items():
        words = (
            f"{show_seconds(seconds)}"
            f"{_waiting(way, rows, width, machine)}, "
            f"bound by {_bound(way, rows, width, machine)}; "
            f"{_room(needed[way], room)}"
        )
        facts.append((WAY_WORDS[way], words))
    in_shards, memory = _in_shards(rows, width, machine)
    words = f"{show_seconds(in_shards)} at best; {_room(memory, room)}"
    facts += [
        ("data parallelism in shards", words),
        ("memory of a device", show_bytes(room)),
    ]
    fitting = [way for way in times if needed[way] < room]
    if memory >= room:
        in_shards = inf
    drawn = draw_map(machine, DEPTH, here=(rows, width))
    return Shown([drawn], facts, _sentence(times, fitting, in_shards))


def _room(num_bytes: float, room: float) -> str:
    fits = "" if num_bytes < room else ", which does not fit"
    return f"{show_bytes(num_bytes)}{fits}"


def _waiting(way: str, rows: int, width: int, machine: Cluster) -> str:
    """Return how much of a step waits for messages."""
    if way == ONE_DEVICE:
        return ""
    found = estimate(way, rows=rows, width=width, depth=DEPTH, cluster=machine)
    share = found.waiting / found.seconds
    return f", {100 * share:.0f} % of it waiting for messages"


def _of(way: str, machine: Cluster) -> tuple[str, Cluster]:
    """Return what to estimate for a way, or for one device."""
    if way == ONE_DEVICE:
        return "data", replace(machine, num_devices=1)
    return way, machine


def _memory(way: str, rows: int, width: int, machine: Cluster) -> float:
    """Return parameters, gradients, Adam's averages and activations."""
    what, where = _of(way, machine)
    found = estimate(what, rows=rows, width=width, depth=DEPTH, cluster=where)
    return 4 * found.parameter_bytes + found.activation_bytes


def _in_shards(rows: int, width: int, machine: Cluster) -> tuple[float, float]:
    """Return seconds and bytes of a device with a shard of what is copied.

    It sends 50 % more, at best during forward and backward.
    """
    found = estimate(
        "data", rows=rows, width=width, depth=DEPTH, cluster=machine
    )
    sizes = DEPTH, found.parameter_bytes / DEPTH, 0.0
    k = machine.num_devices
    peak = max(sum(peak_parts(*sizes, 0, k).values()), update_peak(*sizes, k))
    seconds = max(found.computing, 3 / 2 * found.sending)
    return seconds, peak + found.activation_bytes


def _bound(way: str, rows: int, width: int, machine: Cluster) -> str:
    """Return what would shorten the step the most if it took no time."""
    what, where = _of(way, machine)
    without = {
        "computing": replace(where, accelerator=FREE.accelerator),
        "sending": replace(where, link=FREE.link),
        "launching": replace(where, host=FREE_HOST),
    }
    times = {
        name: estimate(
            what, rows=rows, width=width, depth=DEPTH, cluster=free
        ).seconds
        for name, free in without.items()
    }
    return min(times, key=lambda name: times[name])


def _sentence(
    times: dict[str, float], fitting: list[str], in_shards: float
) -> str:
    """Return who wins and by how much, and who would fit."""
    words = _winner(times, fitting)
    others = min([times[way] for way in fitting], default=inf)
    if "data" not in fitting and in_shards < others:
        took = show_seconds(in_shards)
        words += f" In shards data parallelism fits: {took} at best."
    return words


def _winner(times: dict[str, float], fitting: list[str]) -> str:
    best, second = sorted(times, key=lambda way: times[way])[:2]
    factor = times[second] / times[best]
    name = WAY_WORDS[best].capitalize()
    if best in fitting:
        return (
            f"{name} {_is(best)} the fastest: {show_seconds(times[best])}, "
            f"{factor:.2f} times as fast as {WAY_WORDS[second]}."
        )
    faster = (
        f"{name} would take {show_seconds(times[best])}, and "
        f"{'do' if best == 'layer' else 'does'} not fit."
    )
    if not fitting:
        return f"No way fits into the memory of the devices. {faster}"
    other = min(fitting, key=lambda way: times[way])
    return (
        f"Of what fits, {WAY_WORDS[other]} {_is(other)} the fastest: "
        f"{show_seconds(times[other])}. {faster}"
    )


def _is(way: str) -> str:
    return "are" if way == "layer" else "is"


DECISION = LiveFigure(
    "decision",
    "Which way to split eight dense layers, in float32",
    show_decision,
    {
        "rows": Number(
            "rows of the batch", 4096, [2**i for i in range(5, 18)]
        ),
        "width": Number(
            "width of a layer", 4096, [2**i for i in range(7, 15)]
        ),
        "devices": Number("devices", 4, (2, 3, 4, 5, 6, 7, 8)),
        "accelerator": Choice(
            "accelerator", "v100", ("p100", "v100", "a100", "h100", "rtx4090")
        ),
        "link": Choice(
            "link",
            "nvlink2",
            ("nvlink2", "nvlink3", "nvlink4", "pcie3", "pcie4", "pcie5"),
        ),
    },
    presets={
        "few rows, wide layers": {"rows": 256, "width": 16384},
        "many rows, a slow link": {"rows": 65536, "link": "pcie3"},
        "eight H100": {"devices": 8, "accelerator": "h100", "link": "nvlink4"},
        "too small to share": {"rows": 256, "width": 256},
    },
)
