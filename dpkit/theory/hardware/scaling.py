"""The same hardware, faster or slower by a factor."""

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar

from dpkit.theory.hardware.accelerators import Accelerator
from dpkit.theory.hardware.hosts import Host
from dpkit.theory.hardware.links import LINKS, Link
from dpkit.theory.hardware.presets import find

Scaled = TypeVar("Scaled", Accelerator, Link, Host)


def faster(preset: Scaled, factor: float) -> Scaled:
    """Return the preset with every rate times ``factor``, every cost over it.

    What takes a second on the one takes 1/factor seconds on the other: the
    fractions, and the sizes at which half of a rate is reached, stay.

    Raises:
        ValueError: the factor is not positive.

    Example:
        >>> from dpkit.theory.hardware import HOSTS
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
