"""What the listings of another framework give: here, or as recorded.

``book/elsewhere`` has the listings, ``book/_data/elsewhere`` the records, and
``make elsewhere`` makes an environment for each framework and runs them there.
A record is bound to its listing: another one has no record.

A record keeps how far each parameter is from that of PyTorch, which is
recorded whole, in steps of a power of two. For example, parameters that are
(0, 1.1, −0.6) · 10⁻¹⁶ away are kept as (0, 2, −1) steps of 2⁻⁵⁴ = 5.6 · 10⁻¹⁷.
"""

import hashlib
import importlib.util
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

FRAMEWORKS = ("jax", "tensorflow", "mxnet")
FINEST = -54  # as a power of two; float64 keeps 1/8 to within 2⁻⁵⁶
MOST_STEPS = 2**15 - 1  # of 16 bits

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Results:
    """What the listings of a framework gave.

    ``params[way, k]`` are all parameters of rank 0 after three steps on k
    devices, one behind another; ``apart[way, k]`` is how far those of other
    ranks are from them, at most. ``facts`` is what else the page shows.
    """

    framework: str
    params: dict[tuple[str, int], Array]
    apart: dict[tuple[str, int], float]
    facts: dict[str, Any]
    versions: dict[str, str]
    ran_here: bool


def results(framework: str, book: str | Path = ".") -> Results:
    """Return what the listings of a framework give.

    They run where ``.venv-<framework>`` is, next to ``book``, or if this
    Python has the framework. Else the record is read.

    Args:
        framework: one of ``jax``, ``tensorflow``, ``mxnet``.
        book: the folder of the chapters.

    Raises:
        ValueError: the record is of another listing.

    Example:
        >>> results("mxnet", "book").facts["sum over devices"]
        'cpu(0)'
    """
    if framework not in FRAMEWORKS:
        raise ValueError(
            f"unknown framework (given: {framework!r}, known: "
            f"{', '.join(FRAMEWORKS)})"
        )
    book = Path(book).resolve()
    python = python_with(framework, book)
    if python:
        return run(framework, book, python)
    return recorded(framework, book)


def python_with(framework: str, book: Path) -> str | None:
    """Return the Python that has the framework, if any."""
    own = book.parent / f".venv-{framework}" / "bin" / "python"
    if own.with_name("ready").exists():
        return str(own)
    return sys.executable if importlib.util.find_spec(framework) else None


def run(framework: str, book: Path, python: str) -> Results:
    """Run the listings by a Python that has the framework."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/{framework}"
        subprocess.run(
            [python, "run.py", framework, path],
            cwd=book / "elsewhere",
            check=True,
            stderr=subprocess.PIPE,
        )
        with np.load(f"{path}.npz") as stored:
            params = {_way(name): stored[name] for name in stored}
        record = json.loads(Path(f"{path}.json").read_text())
    return _results(framework, params, record, ran_here=True)


def recorded(framework: str, book: Path) -> Results:
    """Return the record of the listings as they stand."""
    found, of_listing = read(framework, book)
    if of_listing != listing(framework, book):
        raise ValueError(
            f"the record is of another listing (framework: {framework}); "
            f"make elsewhere FRAMEWORK={framework} RENEW=1 renews it"
        )
    return found


def read(framework: str, book: Path) -> tuple[Results, str]:
    """Return a record, and the hash of the listing that it is of."""
    folder = book / "_data" / "elsewhere"
    record = json.loads((folder / f"{framework}.json").read_text())
    with np.load(folder / "pytorch.npz") as stored:
        pytorch = stored["params"]
    with np.load(folder / f"{framework}.npz") as stored:
        params = {
            _way(name): pytorch + stored[name] * 2.0 ** record["steps"][name]
            for name in stored
        }
    found = _results(framework, params, record, ran_here=False)
    return found, record["listing"]


def record(found: Results, book: Path, provenance: dict[str, Any]) -> None:
    """Store what the listings gave.

    Args:
        found: What they gave.
        book: The folder of the chapters.
        provenance: By which command, on what and when they ran. The versions
            of the framework and of its Python are in ``found``.
    """
    folder = book / "_data" / "elsewhere"
    with np.load(folder / "pytorch.npz") as stored:
        pytorch = stored["params"]
    steps: dict[str, int] = {}
    differences: dict[str, Any] = {}
    for way, params in found.params.items():
        steps[_name(way)], differences[_name(way)] = _in_steps(
            params - pytorch
        )
    np.savez_compressed(folder / f"{found.framework}.npz", **differences)
    record = {
        "provenance": provenance,
        "listing": listing(found.framework, book),
        "versions": found.versions,
        "steps": steps,
        "apart": {_name(way): value for way, value in found.apart.items()},
        "facts": found.facts,
    }
    path = folder / f"{found.framework}.json"
    path.write_text(json.dumps(record, indent=1) + "\n")


def _in_steps(differences: Array) -> tuple[int, npt.NDArray[np.int16]]:
    """Return the finest step, as a power of two, and how many of it."""
    power = FINEST
    while np.abs(differences).max() > MOST_STEPS * 2.0**power:
        power += 1
    return power, np.rint(differences / 2.0**power).astype(np.int16)


def listing(framework: str, book: Path) -> str:
    """Return the hash of the files that a record depends on."""
    names = ["common.py", "run.py", "start.npz", f"{framework}.txt"]
    names += [f"{framework}_step.py", f"{framework}_facts.py"]
    found = hashlib.sha256()
    for name in names:
        found.update((book / "elsewhere" / name).read_bytes())
    return found.hexdigest()


def _way(name: str) -> tuple[str, int]:
    way, _, k = name.rpartition(" ")
    return way, int(k)


def _name(way: tuple[str, int]) -> str:
    return f"{way[0]} {way[1]}"


def _results(
    framework: str, params: dict[Any, Array], record: Any, ran_here: bool
) -> Results:
    return Results(
        framework=framework,
        params=params,
        apart={_way(name): value for name, value in record["apart"].items()},
        facts=record["facts"],
        versions=record["versions"],
        ran_here=ran_here,
    )
