"""Presets: hardware that is known by name, or read from a file.

A file is JSON, with a part for each kind of preset, and what they are from::

    {"accelerator": {…}, "host": {…}, "link": {…}, "provenance": {…}}

``python -m dpkit calibrate`` writes one, and ``configure(link="mine.json")``
takes its part of it. The presets with names are files of this form too, with
one part each, in ``data/``. Each number has its source in the table
``sources``: a document, or "fitted to" a measurement, or "assumed" and why.
"""

import json
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, asdict, fields, is_dataclass
from importlib import resources
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar, get_args, get_type_hints

from dpkit.units import check_known


class Dataclass(Protocol):
    """Accelerator, Link or Host, as far as this file needs to know them."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


Preset = TypeVar("Preset", bound=Dataclass)

# What a person who writes a file calls them.
EXPECTED = {
    float: "a number",
    int: "a whole number",
    bool: "true or false",
    str: "a text",
}


def find(
    known: Mapping[str, Preset], name: str | Preset, what: str = ""
) -> Preset:
    """Return a preset by its name or its file; return a preset as it is.

    Args:
        known: The presets that have names.
        name: A name, a file that ends in ".json", or a preset.
        what: What errors call it; by default its kind, such as "link".

    Raises:
        ValueError: the name is unknown, or the file has no such preset.
        TypeError: it is neither a name nor a preset.
    """
    kind = type(next(iter(known.values())))
    part = what or kind.__name__.lower()
    if isinstance(name, kind):
        return name
    if not isinstance(name, str):
        raise TypeError(f"neither a name nor a preset ({part}: {name!r})")
    if name not in known and name.endswith(".json"):
        return read_preset(name, kind)
    check_known(part, name, known)
    return known[name]


def shipped(kind: type[Preset], names: str) -> dict[str, Preset]:
    """Return the presets that come with dpkit, in the order of ``names``."""
    part = kind.__name__.lower()
    folder = resources.files("dpkit.sim.hardware") / "data" / f"{part}s"
    found = {}
    for name in names.split():
        text = (folder / f"{name}.json").read_text(encoding="utf-8")
        found[name] = _made(kind, json.loads(text)[part])
    return found


def save(
    path: str | os.PathLike[str],
    *,
    provenance: Mapping[str, Any],
    **presets: Dataclass,
) -> None:
    """Write presets to a file.

    If writing fails, what was in the file is still there.

    Args:
        path: The file to write, or to write over.
        provenance: What was measured, with what and when.
        presets: ``accelerator``, ``host`` and ``link``, or some of them.
    """
    content: dict[str, Any] = {k: asdict(v) for k, v in presets.items()}
    content["provenance"] = provenance
    text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    path = Path(path)
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        unfinished.write_text(text, encoding="utf-8")
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def read_preset(path: str, kind: type[Preset]) -> Preset:
    """Read a preset from a file.

    Args:
        path: The file, as ``python -m dpkit calibrate`` writes it.
        kind: ``Accelerator``, ``Host`` or ``Link``: which part to read.

    Raises:
        ValueError: the file cannot be read, or has no such part.
    """
    part = kind.__name__.lower()
    where = f"({part}: {path!r})"
    content = _content(path, where)
    if part not in content:
        raise ValueError(
            f"the file has no part of this name {where}; it has: "
            f"{', '.join(content) or 'nothing'}"
        )
    try:
        return _made(kind, content[part])
    except ValueError as error:
        raise ValueError(
            f"this part of the file is not a preset {where}: {error}"
        ) from error


def check_numbers(preset: Dataclass) -> None:
    """Raise ValueError for a number of a preset that makes no sense.

    What a number is follows from how the name of its field ends.
    """
    for name, label, value in _numbers(preset):
        if name.endswith(("_per_second", "_share")):
            fact = "a rate must be positive"
            good = value > 0
        elif name.endswith("_convolutions"):
            fact = "a multiple must be positive"
            good = value > 0
        elif name == "memory_bytes":
            fact = "a size must be positive"
            good = value > 0
        elif name.startswith(("achieved", "fused")):
            fact = "a fraction must be positive and at most one"
            good = 0 < value <= 1
        else:
            fact = "a cost must not be negative"
            good = value >= 0
        if not good:
            raise ValueError(f"{fact} ({label}: {value})")


def _numbers(preset: Dataclass) -> Iterator[tuple[str, str, float]]:
    """Yield each number of a preset: its field, its label, its value."""
    for name in (f.name for f in fields(preset)):
        value = getattr(preset, name)
        if isinstance(value, Mapping) and name != "sources":
            for key, number in value.items():
                yield name, f"{name}[{key!r}]", number
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            yield name, name, value


def _content(path: str, where: str) -> dict[str, Any]:
    """Return what a file of JSON holds, by the names of its parts."""
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"there is no such file {where}") from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise ValueError(f"cannot read the file {where}: {reason}") from error
    except ValueError as error:
        raise ValueError(f"the file is not JSON {where}: {error}") from error
    except RecursionError:
        raise ValueError(f"the file is nested too deep {where}") from None
    if not isinstance(content, dict):
        raise ValueError(
            f"the file is not one of presets {where}: a table of its parts "
            "was expected"
        )
    return content


def _made(kind: type[Preset], values: Any) -> Preset:
    """Return the preset that has these values, if they are of its types."""
    if not isinstance(values, dict):
        raise ValueError("it holds no fields")
    wanted = {field.name: field for field in fields(kind)}
    for name in values.keys() - wanted.keys():
        raise ValueError(f"unknown field ({name})")
    hints = get_type_hints(kind)
    given: dict[str, Any] = {}
    for name, field in wanted.items():
        if name in values:
            given[name] = _checked(name, values[name], hints[name])
        elif field.default is field.default_factory is MISSING:
            raise ValueError(f"missing field ({name})")
    return kind(**given)


# What is accepted for the type of a field:
#
#     float                   1.5, or 2; True is no number
#     Mapping[str, float]     {"float32": 1.5}
#     str | Link              "pcie3", or a table of the fields of a link


def _checked(name: str, value: Any, hint: Any) -> Any:
    """Return a field's value if its type is right; make a preset inside."""
    choices = get_args(hint)
    inner = [c for c in choices if is_dataclass(c)]
    if inner and isinstance(value, dict):
        return _made(inner[0], value)  # type: ignore[arg-type]
    if choices and not inner:  # Mapping[str, float], say
        if not isinstance(value, dict):
            raise ValueError(f"a table was expected ({name}: {value!r})")
        for key, number in value.items():
            _checked(f"{name}[{key!r}]", number, choices[1])
        return value
    simple = str if inner else hint
    types = (int, float) if simple is float else simple
    is_flag = isinstance(value, bool)
    if not isinstance(value, types) or is_flag is not (simple is bool):
        raise ValueError(
            f"{EXPECTED[simple]} was expected ({name}: {value!r})"
        )
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"a number must be finite ({name}: {value})")
    return value
