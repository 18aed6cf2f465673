"""The same work, simulated and measured on a GPU of this machine.

Where the machine has no GPU, the numbers of a record stand for the measured
ones: those of one H200.
"""

import time
from collections.abc import Callable, Mapping
from statistics import median

import torch

from dpbook.common.records import load_record
from dpkit import devices, sim
from dpkit.sim.hardware import ACCELERATORS
from dpkit.tables import Table, table

Work = Callable[[torch.device], float]

SCALES = {"µs": 1e6, "ms": 1e3, "": 1.0}  # of a unit in a second, or in one
RECORDED = "NVIDIA H200"
TIMES = 3  # the work is measured after a first time; the median counts
LONG = 2.0  # seconds, after which the first time is enough


def simulate_and_measure(
    works: Mapping[str, Work],
    unit: str = "ms",
    recorded: Mapping[str, float] | None = None,
    host: str = "eager",
) -> Table:
    """Return what work takes, simulated and measured, on the same GPU.

    The GPU is the first of this machine, or the recorded one. It is simulated
    by the preset of its name; where there is none, nothing is simulated. The
    simulated device computes no values, so this takes a moment.

    Args:
        works: Name -> a function of a device, which works there and returns
            seconds, or another number if the unit is "".
        unit: "µs", "ms" or "".
        recorded: Name -> what the function returned on the recorded GPU. A
            work without a record has an empty cell.
        host: The preset of the simulated host.

    Example:
        >>> def addition(device):
        ...     x = torch.ones(2**24, device=device)
        ...     with dpkit.Timer([device]) as timer:
        ...         x.add_(1)
        ...     return timer.seconds
        >>> head = simulate_and_measure({"2^24 additions": addition}).heads[1]
        >>> head.startswith("simulated (")
        True
    """
    (device,) = devices(1)
    if device.type == "cuda":
        name = torch.cuda.get_device_name(device)
        source = "measured here"
        measured = {work: _measured(works[work], device) for work in works}
    else:
        name = RECORDED
        source = "recorded, no GPU is here"
        measured = dict(recorded or {})
    preset = preset_of(name)
    simulated = _simulated(works, preset, host) if preset else {}
    heads = {
        f"simulated ({preset})": simulated,
        f"{name} ({source})": measured,
    }
    rows = []
    for work in works:
        row = {"work": work}
        for head, numbers in heads.items():
            if numbers:
                row[f"{head}, {unit}" if unit else head] = (
                    f"{SCALES[unit] * numbers[work]:.3g}"
                    if work in numbers
                    else "–"
                )
        if work in simulated and work in measured:
            row["measured / simulated"] = (
                f"{measured[work] / simulated[work]:.2f}"
            )
        rows.append(row)
    return table(rows)


def preset_of(name: str) -> str:
    """Return the preset that a GPU's name holds, the longest, or "".

    Example:
        >>> preset_of("NVIDIA H200"), preset_of("Tesla V100-PCIE-16GB")
        ('h200', 'v100-pcie')
        >>> preset_of("NVIDIA Double")
        ''
    """
    compact = name.lower().replace(" ", "")
    return max((k for k in ACCELERATORS if k in compact), key=len, default="")


def _measured(work: Work, device: torch.device) -> float:
    start = time.perf_counter()
    first = work(device)  # libraries are loaded, and memory is allocated
    if time.perf_counter() - start > LONG:
        return first
    return median(work(device) for _ in range(TIMES))


def _simulated(
    works: Mapping[str, Work], preset: str, host: str
) -> dict[str, float]:
    with sim.machine(
        accelerator=preset, host=host, link="pcie5", backing="meta"
    ):
        (device,) = devices(1, kind="sim")
        return {name: work(device) for name, work in works.items()}


def recorded_time(kind: str) -> float:
    """Return the seconds of the largest work of a kind, on the H200.

    Args:
        kind: A kind of ``python -m dpkit calibrate``: "product float32" is a
            product of 4096 × 4096 matrices, "copy" one of 64 MiB with pinned
            memory, "launch" what the host needs for an operation.
    """
    record = load_record("calibrated_h200")
    return float(record["provenance"]["times"][kind][-1][1])


def recorded_step(name: str) -> float:
    """Return the seconds of a training step on the H200: "LeNet 64"."""
    record = load_record("gpu_operators")
    (row,) = [row for row in record["parts"] if row["step"] == name]
    return float(sum(row[key] for key in row if key != "step"))
