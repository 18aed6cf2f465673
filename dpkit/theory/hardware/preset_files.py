"""Presets in files: ``python -m dpkit calibrate`` writes one.

A file is JSON, with a part for each kind of preset, and what they are from::

    {"accelerator": {…}, "host": {…}, "link": {…}, "provenance": {…}}

``configure(accelerator="this-machine.json")`` takes its part of it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_type_hints

if TYPE_CHECKING:  # hardware reads presets by way of this file
    from dpkit.theory.hardware import Accelerator, Host, Link

Preset = TypeVar("Preset")

# What a person who writes a file calls them.
EXPECTED = {
    float: "a number",
    int: "a whole number",
    bool: "true or false",
    str: "a text",
}


def save(
    path: str | os.PathLike[str],
    *,
    accelerator: Accelerator,
    host: Host,
    link: Link,
    provenance: Mapping[str, Any],
) -> None:
    """Write presets to a file, in place of what was there.

    Args:
        path: The file; ``configure`` finds it if its name ends in ".json".
        accelerator: What computes.
        host: What issues work.
        link: What copies pass over.
        provenance: What they were measured on, with what and when: anything
            that JSON can hold.

    Raises:
        OSError: the file cannot be written; what was there is still there.

    Example:
        >>> import tempfile
        >>> from dpkit.theory.hardware import ACCELERATORS, HOSTS, LINKS, find
        >>> v100 = ACCELERATORS["v100"]
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = folder + "/mine.json"
        ...     save(path, accelerator=v100, host=HOSTS["eager"],
        ...          link=LINKS["pcie3"], provenance={"date": "2026-11-20"})
        ...     find(ACCELERATORS, path) == v100
        True
    """
    content = {
        "accelerator": asdict(accelerator),
        "host": asdict(host),
        "link": asdict(link),
        "provenance": provenance,
    }
    text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    path = Path(path)
    beside = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def load(path: str, kind: type[Preset]) -> Preset:
    """Return one part of a file as a preset.

    Args:
        path: The file.
        kind: ``Accelerator``, ``Host`` or ``Link``; the part has its name.

    Raises:
        ValueError: the file cannot be read, is no file of presets, or lacks
            this part; or the part is not what it should be.

    Example:
        >>> from dpkit.theory.hardware import Link
        >>> load("nowhere.json", Link)
        Traceback (most recent call last):
            ...
        ValueError: there is no such file (link: 'nowhere.json')
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
    if not isinstance(content, dict):
        raise ValueError(f"the file is not one of presets {where}")
    return content


def _made(kind: type[Preset], values: Any) -> Preset:
    """Return the preset that has these values, if they can be its own."""
    if not isinstance(values, dict):
        raise ValueError("it holds no fields")
    assert is_dataclass(kind)
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


def _checked(name: str, value: Any, hint: Any) -> Any:
    """Return the value of a field, a preset inside it made; check its type."""
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
    return value
