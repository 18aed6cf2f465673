"""The calculator's times, compared with steps that others have timed."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from dpbook.explore.calculator import MODELS, fastest, own_network
from dpbook.planner.machines import MACHINES, NODE
from dpkit.tables import Table, table

# The machines whose GPUs and network come nearest to those of the sources.
MACHINE_OF = {"a100": "ND96amsr_A100_v4", "h100": "p5.48xlarge"}
_NAMED = {"Llama 2 13B": "Llama 2, 13B", "Llama 3 70B": "Llama 3, 70B"}


class Step(NamedTuple):
    """A step that was timed, and what the calculator says of it."""

    group: str
    network: str
    num_gpus: int
    measured: float  #: tokens a second of a GPU
    calculated: float  #: the same, of the fastest layout


def published_steps(path: str | Path) -> Iterator[Step]:
    """Yield steps of language models, and the calculator's fastest layout.

    Args:
        path: That of ``plans.json``.
    """
    record = json.loads(Path(path).read_text(encoding="utf-8"))
    foundry = record["foundry"]
    for gpu, machine in MACHINE_OF.items():
        for name, gpus, _, examples, measured, _ in foundry[gpu]:
            layers, width, heads = foundry["sizes"][name]
            net = own_network(
                layers=layers,
                width=width,
                heads=heads,
                words=foundry["vocabulary"],
                sequence=foundry["sequence"],
            )
            group = f"ZeRO-3 on {gpu.upper()}"
            found = _calculated(net, examples, machine, gpus)
            yield Step(
                group,
                network=name,
                num_gpus=gpus,
                measured=measured,
                calculated=found,
            )
    for name, gpus, _, examples, measured, _ in record["fsdp2"]["a100"]:
        if name in _NAMED:
            net = MODELS[_NAMED[name]]
            found = _calculated(net, examples, MACHINE_OF["a100"], gpus)
            yield Step(
                "FSDP2 on A100",
                network=name,
                num_gpus=gpus,
                measured=measured,
                calculated=found,
            )


def _calculated(net: Any, examples: int, machine: str, gpus: int) -> float:
    _, cost = fastest(
        net, examples, machine=MACHINES[machine], num_machines=gpus // NODE
    )
    assert cost is not None
    return float(examples * net.sequence / cost.seconds.total / gpus)


def published_table(path: str | Path) -> Table:
    """Return by which factor the calculator is faster than what was timed.

    Args:
        path: That of ``plans.json``.
    """
    groups: dict[str, list[Step]] = {}
    for step in published_steps(path):
        groups.setdefault(step.group, []).append(step)
    return table(
        [
            {
                "timed steps": group,
                "how many": len(steps),
                "GPUs": _span([step.num_gpus for step in steps]),
                "mean factor": f"{_mean(_factors(steps)):.2f}",
                "from": f"{min(_factors(steps)):.2f}",
                "to": f"{max(_factors(steps)):.2f}",
            }
            for group, steps in groups.items()
        ]
    )


def _factors(steps: list[Step]) -> list[float]:
    return [step.calculated / step.measured for step in steps]


def _mean(factors: list[float]) -> float:
    return math.exp(math.fsum(map(math.log, factors)) / len(factors))


def _span(numbers: list[int]) -> str:
    least, most = min(numbers), max(numbers)
    return f"{least}" if least == most else f"{least} to {most}"
