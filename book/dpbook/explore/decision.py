"""Which way to split, live: the map of the fastest, and the reader's point."""

from dataclasses import dataclass, replace
from math import inf

from dpbook.explore.figure import Choice, LiveFigure, Number, Shown
from dpbook.explore.way_map import draw_map, needed_bytes
from dpbook.formulas.dense import SIZES
from dpbook.formulas.sharding import peak_parts, update_peak
from dpbook.formulas.splits import ONE_DEVICE, WAYS, Estimate, estimate
from dpkit.plans import FREE_HOST, Rates, ideal_cluster
from dpkit.sim.hardware import Cluster, cluster
from dpkit.units import show_bytes, show_seconds

DEPTH = 8  # layers
FLOAT32 = "float32"
HALF = "16 bits"
WAY_WORDS = {
    ONE_DEVICE: "one device",
    "data": "data parallelism",
    "network": "the network in stages",
    "layer": "split layers",
}
FREE = ideal_cluster(1, Rates(0, 0))  # where nothing takes time


@dataclass(frozen=True)
class _Batch:
    """A batch of the eight layers, and the devices that share it."""

    rows: int
    width: int
    machine: Cluster
    dtype: str

    @property
    def room(self) -> float:
        """The bytes of memory of a device."""
        return self.machine.accelerator.memory_bytes

    def estimate(self, way: str) -> Estimate:
        """Return what a way costs."""
        return estimate(
            way,
            rows=self.rows,
            width=self.width,
            depth=DEPTH,
            cluster=self.machine,
            dtype=self.dtype,
        )

    def needs(self, way: str) -> float:
        """Return parameters, gradients, Adam's averages and activations."""
        return needed_bytes(self.estimate(way), self.dtype)

    def in_shards(self) -> tuple[float, float]:
        """Return seconds and bytes of data parallelism in shards.

        A device has a shard of what is copied otherwise. It sends 50 % more,
        at best during forward and backward, so that it is never faster.
        """
        found = self.estimate("data")
        k = self.machine.num_devices
        size = SIZES[self.dtype]
        # The shards are in float32; blocks become whole in what is computed.
        sizes = DEPTH, found.parameter_bytes / DEPTH * 4 / size, 0.0
        parts = peak_parts(*sizes, 0, k)
        parts["blocks"] *= size / 4
        peak = max(sum(parts.values()), update_peak(*sizes, k))
        seconds = max(found.seconds, 3 / 2 * found.sending)
        return seconds, peak + found.activation_bytes


def show_decision(
    rows: int,
    width: int,
    devices: int,
    accelerator: str,
    link: str,
    numbers: str,
) -> Shown:
    """Compare the ways to split eight dense layers, for one batch.

    Args:
        rows: The examples of the batch, over all devices.
        width: The values that go into each layer and come out of it.
        devices: How many there are.
        accelerator: A preset.
        link: A preset.
        numbers: In which format it computes and sends.
    """
    machine = cluster(devices, accelerator, link)
    batch = _Batch(
        rows=rows, width=width, machine=machine, dtype=_dtype(numbers, machine)
    )
    ways = ONE_DEVICE, *WAYS
    times = {way: batch.estimate(way).seconds for way in ways}
    facts = [(WAY_WORDS[way], _fact(batch, way)) for way in ways]
    in_shards, memory = batch.in_shards()
    room = batch.room
    needs = f"{show_seconds(in_shards)} at best; {_room(memory, room)}"
    facts += [
        ("data parallelism in shards", needs),
        ("memory of a device", show_bytes(room)),
    ]
    fitting = [way for way in ways if batch.needs(way) < room]
    drawn = draw_map(machine, DEPTH, here=(rows, width), dtype=batch.dtype)
    sentence = _sentence(times, fitting, in_shards if memory < room else inf)
    if fitting:
        fastest = min(fitting, key=lambda way: times[way])
        sentence += f" {_why(batch, fastest)}"
    return Shown([drawn], facts, sentence)


def _dtype(numbers: str, machine: Cluster) -> str:
    """Return the type of the numbers; of 16 bits, the faster one."""
    if numbers == FLOAT32:
        return FLOAT32
    rates = machine.accelerator.flops_per_second
    fast = rates["bfloat16"] >= rates["float16"]
    return "bfloat16" if fast else "float16"


def _fact(batch: _Batch, way: str) -> str:
    """Return how long a step takes, what bounds it, and what it needs."""
    found = batch.estimate(way)
    taken = show_seconds(found.seconds)
    if way != ONE_DEVICE:
        share = found.waiting / found.seconds
        taken += f", {100 * share:.0f} % of it waiting for messages"
    room = _room(batch.needs(way), batch.room)
    return f"{taken}, bound by {_bound(batch, way)}; {room}"


def _room(num_bytes: float, room: float) -> str:
    fits = "" if num_bytes < room else ", which does not fit"
    return f"{show_bytes(num_bytes)}{fits}"


def _bound(batch: _Batch, way: str) -> str:
    """Return what would shorten the step the most if it took no time."""
    where = batch.machine
    without = {
        "computing": replace(where, accelerator=FREE.accelerator),
        "sending": replace(where, link=FREE.link),
        "launching": replace(where, host=FREE_HOST),
    }
    times = {
        name: replace(batch, machine=free).estimate(way).seconds
        for name, free in without.items()
    }
    return min(times, key=lambda name: times[name])


def _why(batch: _Batch, best: str) -> str:
    """Return why a way, the fastest of what fits, is the fastest."""
    found = batch.estimate(best)
    waits = show_seconds(found.waiting)
    if best == ONE_DEVICE:
        split = min(WAYS, key=lambda way: batch.estimate(way).seconds)
        bound = _bound(batch, split)
        return f"The step is short: split, it would be bound by {bound}."
    if best == "data":
        hidden = max(0.0, found.sending - found.waiting)
        took = f"The gradients take {show_seconds(found.sending)} to send"
        return f"{took}, and backward hides {show_seconds(hidden)} of that."
    if best == "network":
        bubble = found.seconds - found.computing - found.waiting
        return (
            f"Stages send at their borders alone: a device waits {waits} for "
            f"messages, and {show_seconds(max(0.0, bubble))} in the bubble."
        )
    gradients = show_seconds(batch.estimate("data").sending)
    return (
        f"Nothing hides their messages, which take {waits}; but the "
        f"gradients of data parallelism would take {gradients} to send."
    )


def _sentence(
    times: dict[str, float], fitting: list[str], in_shards: float
) -> str:
    """Return who wins and by how much, and who would fit."""
    sentence = _winner(times, fitting)
    others = min([times[way] for way in fitting], default=inf)
    if "data" not in fitting and in_shards < others:
        took = show_seconds(in_shards)
        sentence += f" In shards data parallelism fits: {took} at best."
    return sentence


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
        f"Memory decides, not time: of what fits, {WAY_WORDS[other]} "
        f"{_is(other)} the fastest, with {show_seconds(times[other])}. "
        f"{faster}"
    )


def _is(way: str) -> str:
    return "are" if way == "layer" else "is"


DECISION = LiveFigure(
    "decision",
    "Which way to split eight dense layers",
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
        "numbers": Choice("number format", FLOAT32, (FLOAT32, HALF)),
    },
    presets={
        "few rows, wide layers": {"rows": 256, "width": 16384},
        "many rows, a slow link": {"rows": 65536, "link": "pcie3"},
        "eight H100": {"devices": 8, "accelerator": "h100", "link": "nvlink4"},
        "too wide for memory": {"rows": 65536, "width": 16384},
        "too small to share": {"rows": 256, "width": 256},
    },
)
