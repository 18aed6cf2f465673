"""Record what a step of Llama 3 8B needs on 64 GPUs, by two accounts.

Usage: python scripts/record.py llama_memory

The package transformers must be there. ``public/llama_fsdp.py`` runs on
simulated GPUs, of which one stands for all, and under PyTorch's own tracker.
Both count tensors on rank 0. It takes two minutes.
"""

import json
import os
import subprocess
import sys
from importlib.metadata import version
from typing import Any

from recorders.provenance import ROOT, provenance, store
from recorders.public.table import HERE

RECORD = "llama_memory"
RANKS = 64
ON_NODE = 8
LENGTH = 8192
PARAMETERS = 9 * 32 + 3  # tensors
FIRST_STEP = (
    "the tracker counts besides, as the optimizer's state, three whole "
    "float32 tensors for each parameter, however many ranks there are: "
    "probably those by which DTensor finds shapes, which have no memory"
)
PROGRAM = str(HERE / "llama_fsdp.py")
SIMULATED = [
    "-m", "dpkit", "torchrun", "--meta", "--alike",
    "--nnodes", str(RANKS // ON_NODE), "--nproc-per-node", str(ON_NODE),
    "--accelerator", "h100", PROGRAM,
]  # fmt: skip
TRACKED = [PROGRAM, "--tracked", str(RANKS)]


def main() -> None:
    """Write the record."""
    simulated, tracked = peaks(SIMULATED), peaks(TRACKED)
    record = {
        "provenance": provenance("python scripts/record.py llama_memory")
        | {"transformers": version("transformers")},
        "what": (
            "the peak of bytes on one of 64 GPUs in two steps of Llama 3 8B: "
            "FSDP2 with bfloat16, 8,192 words, layers recomputed, AdamW"
        ),
        "simulated": simulated,
        "tracked": tracked,
        "difference_of_second_step": tracked[1] - simulated[1],
        "explained": explained(),
        "first_step": FIRST_STEP,
    }
    store(RECORD, record)


def peaks(arguments: list[str]) -> list[int]:
    """Run a program that prints peaks, and return them.

    Raises:
        subprocess.CalledProcessError: It has failed.
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.run(
        [sys.executable, *arguments],
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    (line,) = [x for x in run.stdout.splitlines() if '"peaks"' in x]
    found: list[int] = json.loads(line)["peaks"]
    return found


def explained() -> list[dict[str, Any]]:
    """Return what the tracker counts besides in the second step, in bytes."""
    return [
        {
            "what": "a mask of the words that each may see: transformers "
            "makes none on a GPU, but makes one where tensors have no values",
            "bytes": LENGTH**2,
        },
        {
            "what": "AdamW's count of steps for each tensor: on the CPU in "
            "either case, which is the tracker's only device",
            "bytes": 4 * PARAMETERS,
        },
    ]
