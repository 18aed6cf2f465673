"""Take a step of one model on layouts of eight devices, by PyTorch's engines.

Usage: python scripts/record.py mesh [LAYOUT ...]

Each row has a layout; the simulated seconds, the bytes by kind and the peak of
memory of a step on two nodes of four A100s; and how far three steps of a small
model in float64 are from one device. It takes about five minutes on a CPU
core. With names such as "fsdp8" or "fsdp4 × tp2" only these layouts are run,
and what the record has of all others stays.
"""

from dataclasses import asdict, replace
from functools import cache
from typing import Any

from tqdm import tqdm

import dpkit
from dpbook.mesh.layouts import Layout
from dpbook.mesh.programs import (
    SMALL,
    Learned,
    largest_difference,
    learn,
    learn_on_one_device,
)
from dpbook.mesh.runs import LARGE, NODES, NUM_ROWS, measure
from recorders.provenance import DATA, load, provenance, store

OUTSIDE = ("tp", "pp", "ddp", "replicate", "fsdp", "cp")  # tp across nodes
LAYOUTS = [
    Layout(ddp=8),
    Layout(fsdp=8),
    Layout(replicate=2, fsdp=4),
    Layout(tp=8),
    Layout(fsdp=4, tp=2),
    Layout(fsdp=2, tp=4),
    Layout(pp=2, fsdp=4, micro_batches=4),
    Layout(pp=2, tp=4, micro_batches=4),
    Layout(pp=2, fsdp=2, tp=2, micro_batches=4),
    Layout(cp=2, fsdp=4),
    Layout(pp=2, cp=2, tp=2, micro_batches=4),
    Layout(fsdp=8, recompute=True),
    Layout(fsdp=2, tp=4, recompute=True),
    Layout(fsdp=2, tp=4, order=OUTSIDE),
]


@cache
def one_device() -> Learned:
    """Return three steps of the small model without any engine."""
    return learn_on_one_device()


def row(layout: Layout) -> dict[str, Any]:
    """Return a row of the record."""
    found = measure(replace(layout, bfloat16=True))
    return {
        "name": str(layout),
        "layout": {k: v for k, v in asdict(layout).items() if k != "cut"},
        "seconds": found.seconds,
        "peak_bytes": found.peak_bytes,
        "sent": {" ".join(key): n for key, n in sorted(found.sent.items())},
        "difference": difference(layout),
    }


def difference(layout: Layout) -> float:
    """Return how far the small model is from one device, relatively."""
    ranks = dpkit.sim.launch(learn, layout.num_ranks, layout)
    return largest_difference(ranks, one_device())


def main(*names: str) -> None:
    """Take the steps of these layouts, or of all, and write the record."""
    what = (
        "a step of AdamW of one Llama in bfloat16 on layouts of 8 ranks; "
        "'sent' has the bytes that all ranks send, by dimension of the mesh "
        "and kind, 'shards' being fsdp and cp together; 'difference' is that "
        "of three steps of a small one in float64 to one device, relative"
    )
    chosen = [x for x in LAYOUTS if not names or str(x) in names]
    rows = kept(names) | {
        str(layout): row(layout) for layout in tqdm(chosen, "layouts")
    }
    record = {
        "provenance": provenance("python scripts/record.py mesh")
        | {"clock": "simulated"},
        "what": what,
        "machine": NODES,
        "model": asdict(LARGE),
        "rows_of_a_batch": NUM_ROWS,
        "small_model": asdict(SMALL),
        "layouts": [rows[str(x)] for x in LAYOUTS if str(x) in rows],
    }
    store("mesh", record)


def kept(names: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """Return the rows that stay, by name: none without names."""
    if not names or not (DATA / "mesh.json").exists():
        return {}
    return {one["name"]: one for one in load("mesh")["layouts"]}
