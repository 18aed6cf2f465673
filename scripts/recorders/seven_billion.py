"""Step a model of 6.7 billion parameters on simulated H100s; record it.

Usage: python scripts/record.py seven_billion

No GPU is needed: tensors have shapes and no numbers. It takes some minutes.
"""

from typing import Any

import torch

from dpbook.sharding.seven_billion import SIZES, sharded_steps
from recorders.provenance import provenance, store

RUNS: list[dict[str, Any]] = [
    {"world_size": 1, "rows": 1, "checkpointed": False},
    {"world_size": 2, "rows": 1, "checkpointed": False},
    {"world_size": 4, "rows": 1, "checkpointed": False},
    {"world_size": 8, "rows": 1, "checkpointed": False},
    {"world_size": 8, "rows": 1, "checkpointed": True},
    {"world_size": 8, "rows": 16, "checkpointed": False},
    {"world_size": 8, "rows": 16, "checkpointed": True},
]


def main() -> None:
    """Take the steps; write what they took, or what they lacked."""
    record = {
        "provenance": provenance("python scripts/record.py seven_billion"),
        "sizes": SIZES,
        "length": 2048,
        "accelerator": "h100",
        "link": "nvlink4",
        "runs": [run | outcome(**run) for run in RUNS],
    }
    store("seven_billion", record)


def outcome(**run: Any) -> dict[str, Any]:
    """Return what a run took; of one that does not fit, the error."""
    try:
        return sharded_steps(SIZES, length=2048, **run)
    except RuntimeError as error:
        if not isinstance(error.__cause__, torch.OutOfMemoryError):
            raise
        return {"out_of_memory": str(error.__cause__)}
