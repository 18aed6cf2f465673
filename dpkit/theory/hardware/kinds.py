"""Accelerators, links and hosts: the numbers that time is computed from.

A preset keeps two things apart: what the datasheet promises, and the fraction
of it that programs achieve. Each number has its source, under the name of its
field in ``sources``::

    >>> LINKS["nvlink2"].sources["achieved"]
    'wohlbier/gpu-micro, README, DGX-2: 145.6 GB/s'

The tables are in ``presets``; the presets made of them are here, as
``ACCELERATORS``, ``LINKS`` and ``HOSTS``. Others come from files
(``preset_files``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

from dpkit.theory.hardware import preset_files, presets

DTYPES = ("float64", "float32", "tf32", "float16", "bfloat16")


@dataclass(frozen=True)
class Accelerator:
    """A device that computes.

    Attributes:
        name: What ``configure`` calls it.
        flops_per_second: The datasheet's peak for each dtype, of ``DTYPES``.
            A dtype that is left out is computed as float32 is.
        bytes_per_second: The datasheet's bandwidth of its memory.
        memory_bytes: The size of its memory.
        achieved_flops: The fraction of each peak that large products reach.
        achieved_bytes: The fraction of the bandwidth that large copies reach.
        half_flops: The work at which half of that rate is reached: below it
            there is too little to fill the device. One number for all
            dtypes, right for float32; small products in the faster ones take
            longer than it says.
        half_bytes: The same, for traffic to memory.
        kernel_seconds: What each operation costs the device besides.
        host_link: The link to its host: its name in ``LINKS``, or itself.
        synchronous: Whether the host does the work itself, as a CPU does.
        sources: Where each number is from.

    Raises:
        ValueError: a number cannot be, or a dtype is unknown.

    Example:
        >>> v100 = ACCELERATORS["v100-pcie"]
        >>> v100.flops_per_second["float32"], v100.achieved_flops["float32"]
        (14000000000000.0, 0.93)
    """

    name: str
    flops_per_second: Mapping[str, float]
    bytes_per_second: float
    memory_bytes: int
    achieved_flops: Mapping[str, float]
    achieved_bytes: float
    half_flops: float
    half_bytes: float
    kernel_seconds: float
    host_link: str | Link
    synchronous: bool = False
    sources: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for given in ("flops_per_second", "achieved_flops"):
            for dtype in getattr(self, given):
                if dtype not in DTYPES:
                    raise ValueError(
                        f"unknown dtype ({given}: {dtype!r}, "
                        f"known: {', '.join(DTYPES)})"
                    )
        if "float32" not in self.flops_per_second:
            raise ValueError(
                "there must be a rate for float32 "
                f"(flops_per_second: {', '.join(self.flops_per_second)})"
            )
        if set(self.flops_per_second) != set(self.achieved_flops):
            raise ValueError(
                "rates and fractions must be of the same dtypes "
                f"(flops_per_second: {', '.join(self.flops_per_second)}; "
                f"achieved_flops: {', '.join(self.achieved_flops)})"
            )
        _check(self)


@dataclass(frozen=True)
class Link:
    """What copies between devices pass over, in both directions at once.

    Attributes:
        name: What ``configure`` calls it.
        bytes_per_second: The datasheet's rate of one port, one direction.
        achieved: The fraction of it that large copies reach.
        latency_seconds: What each copy costs besides.
        peer_to_peer: Whether devices reach each other; if not, all copies
            between them pass over the one path through the host.
        sources: Where each number is from.

    Raises:
        ValueError: a number cannot be.

    Example:
        >>> Link("x", -1, achieved=1, latency_seconds=0, peer_to_peer=True)
        Traceback (most recent call last):
            ...
        ValueError: a rate must be positive (bytes_per_second: -1)
    """

    name: str
    bytes_per_second: float
    achieved: float
    latency_seconds: float
    peer_to_peer: bool
    sources: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check(self)


@dataclass(frozen=True)
class Host:
    """What issuing work costs the host: eager PyTorch on a CPU.

    Attributes:
        name: What ``configure`` calls it.
        launch_seconds: The host's time for an operation of the forward pass.
        backward_launch_seconds: The same when autograd issues it.
        view_seconds: The host's time for a view, which launches nothing.
        wait_seconds: The host's time for waiting on a device.
        pageable_bytes_per_second: The rate of copies to and from memory that
            is not pinned.
        sources: Where each number is from.

    Raises:
        ValueError: a number cannot be.

    Example:
        >>> HOSTS["eager"].launch_seconds
        8e-06
    """

    name: str
    launch_seconds: float
    backward_launch_seconds: float
    view_seconds: float
    wait_seconds: float
    pageable_bytes_per_second: float
    sources: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check(self)


Preset = TypeVar("Preset", Accelerator, Link, Host)


def find(known: Mapping[str, Preset], name: str | Preset) -> Preset:
    """Return the preset of this name; a preset is returned as it is.

    Args:
        known: ``ACCELERATORS``, ``LINKS`` or ``HOSTS``.
        name: A name among them; the path of a file that holds one, ending in
            ".json"; or a preset of one's own.

    Raises:
        TypeError: it is neither a name nor a preset of this kind.
        ValueError: there is none of this name, or the file holds none.

    Example:
        >>> find(LINKS, "nvlink2").peer_to_peer
        True
    """
    kind = type(next(iter(known.values())))
    part = kind.__name__.lower()
    if isinstance(name, kind):
        return name
    if not isinstance(name, str):
        raise TypeError(f"neither a name nor a preset ({part}: {name!r})")
    if name in known:
        return known[name]
    if name.endswith(".json"):
        return preset_files.load(name, kind)
    raise ValueError(
        f"unknown {part} ({part}: {name!r}, known: {', '.join(known)})"
    )


def faster(preset: Preset, factor: float) -> Preset:
    """Return the preset with every rate times ``factor``, every cost over it.

    What takes a second on the one takes 1/factor seconds on the other: the
    fractions, and the sizes at which half of a rate is reached, stay.

    Args:
        preset: An accelerator, a link or a host.
        factor: How many times as fast; below one, it is slower.

    Raises:
        ValueError: the factor is not positive.

    Example:
        >>> twice = faster(HOSTS["eager"], 2)
        >>> twice.name, twice.launch_seconds, twice.pageable_bytes_per_second
        ('eager ×2', 4e-06, 2620000000.0)
    """
    if not factor > 0:
        raise ValueError(f"a factor must be positive (factor: {factor})")
    mark = f" ×{factor:g}"
    changes: dict[str, Any] = {}
    for name in (f.name for f in fields(preset)):
        value = getattr(preset, name)
        if name.endswith("_seconds"):
            changes[name] = value / factor
        elif not name.endswith("_per_second"):
            continue
        elif isinstance(value, Mapping):
            changes[name] = {k: factor * x for k, x in value.items()}
        else:
            changes[name] = factor * value
    sources = {
        name: source + mark if name in changes else source
        for name, source in preset.sources.items()
    }
    if isinstance(preset, Accelerator):
        changes["host_link"] = faster(find(LINKS, preset.host_link), factor)
    return replace(preset, name=preset.name + mark, sources=sources, **changes)


def _check(preset: Accelerator | Link | Host) -> None:
    """Refuse numbers that cannot be; the ends of names say what they are."""
    for name, label, value in _numbers(preset):
        if name.endswith("_per_second"):
            fact, good = "a rate must be positive", value > 0
        elif name == "memory_bytes":
            fact, good = "a size must be positive", value > 0
        elif name.startswith("achieved"):
            fact = "a fraction must be positive and at most one"
            good = 0 < value <= 1
        else:
            fact, good = "a cost must not be negative", value >= 0
        if not good:
            raise ValueError(f"{fact} ({label}: {value})")


def _numbers(
    preset: Accelerator | Link | Host,
) -> Iterator[tuple[str, str, float]]:
    """Yield each number of a preset: its field, what to call it, itself."""
    for name in (f.name for f in fields(preset)):
        value = getattr(preset, name)
        if name == "sources" or isinstance(value, (bool, str, Link)):
            continue
        if isinstance(value, Mapping):
            for key, number in value.items():
                yield name, f"{name}[{key!r}]", number
        else:
            yield name, name, value


def _made(
    kind: type[Preset], table: Mapping[str, presets.Fields]
) -> dict[str, Preset]:
    """Return the presets of a table, by name."""
    return {
        name: kind(
            name=name,
            **{key: value for key, (value, _) in row.items()},
            sources={key: source for key, (_, source) in row.items()},
        )
        for name, row in table.items()
    }


ACCELERATORS = _made(Accelerator, presets.ACCELERATORS)
LINKS = _made(Link, presets.LINKS)
HOSTS = _made(Host, presets.HOSTS)
