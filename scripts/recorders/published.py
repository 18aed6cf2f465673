"""Simulate published pipelines and record their seconds in book/_data.

Usage: python scripts/record.py published [RECORD ...]

All records, or those named: amoebanet_p40, resnet50_pipeline.
The seconds are those of a simulated clock: the same on any machine, until a
preset or the model of costs changes. It takes some ten minutes on a CPU core.
"""

from collections.abc import Sequence
from typing import Any

import torch

import dpkit
from dpkit import sim
from dpkit.network_partition import LayerCost, layer_seconds
from recorders.amoebanet import amoebanet_d
from recorders.provenance import load, provenance, store
from recorders.resnet_pipeline import resnet50_seconds

PRESETS = ("k80", "p100", "v100-pcie")
LINK = "pcie3"


def columns(costs: Sequence[LayerCost]) -> dict[str, list[float]]:
    """Return the costs of layers as columns, for a JSON file."""
    found = zip(*costs, strict=True)
    return {k: list(c) for k, c in zip(LayerCost._fields, found)}


def amoebanet() -> dict[str, Any]:
    """Time the layers of AmoebaNet-D for each published micro-batch."""
    published = load("torchgpipe_amoebanet")
    runs = published["runs"]
    sizes = {run["batch"] // run["num_micro_batches"] for run in runs}
    pixels = published["image_size"]
    micro_batches = {}
    with sim.machine(
        num_devices=1, accelerator="p40", link=LINK, backing="meta"
    ):
        (device,) = dpkit.devices(1, kind="sim")
        with device:
            layers = amoebanet_d(
                published["num_layers"], published["num_filters"]
            )
        for size in sorted(sizes):
            X = torch.empty(size, 3, pixels, pixels, device=device)
            costs = layer_seconds(layers, X, device)
            micro_batches[str(size)] = columns(costs)
            print(f"micro-batch {size}", flush=True)
        del layers, X
    presets = {"accelerator": "p40", "link": LINK, "host": "eager"}
    return {"presets": presets, "micro_batches": micro_batches}


def resnet50() -> dict[str, Any]:
    """Time the tutorial's program, unsplit and for each split size."""
    sizes = load("pytorch_model_parallel")["split_sizes"]
    seconds = {}
    for preset in PRESETS:
        seconds[preset] = {
            "one device": resnet50_seconds(None, 1, preset, LINK),
            "no": resnet50_seconds(None, 2, preset, LINK),
            **{
                str(size): resnet50_seconds(size, 2, preset, LINK)
                for size in sizes
            },
        }
        print(preset, seconds[preset], flush=True)
    return {"link": LINK, "host": "eager", "seconds": seconds}


RECORDS = {"amoebanet_p40": amoebanet, "resnet50_pipeline": resnet50}


def main(*names: str) -> None:
    """Simulate; write each record when it has ended."""
    for name in names or RECORDS:
        command = "python scripts/record.py published"
        facts = provenance(command) | {"clock": "simulated"}
        store(name, {"provenance": facts, **RECORDS[name]()})
