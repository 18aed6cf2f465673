"""Tables of training steps on a GPU, measured and simulated."""

from collections.abc import Sequence
from typing import Any

from dpbook.common.records import load_record
from dpkit.tables import Table, table
from dpkit.units import show_factor

PRESETS = "h200", "calibrated"
TRACED = "ResNet-50 256 bfloat16"
# What is shown -> its names on the GPU, and on simulated devices.
OPERATORS = {
    "batch norm": ("native_batch_norm", "native_batch_norm"),
    "batch norm, backward": ("native_batch_norm_backward",) * 2,
    "convolution": ("cudnn_convolution", "convolution"),
    "convolution, backward": ("convolution_backward",) * 2,
    "ReLU": ("clamp_min_", "relu_"),
    "ReLU, backward": ("threshold_backward",) * 2,
}

Rows = Sequence[dict[str, Any]]


def parts_table(names: Sequence[str]) -> Table:
    """Return the milliseconds that the host takes for parts of a step."""
    rows = {row["step"]: row for row in load_record("gpu_operators")["parts"]}
    parts = "forward", "loss", "backward", "update", "wait"
    return table(
        [
            {"ms of": name}
            | {
                part: f"{1e3 * rows[name][f'{part}_seconds']:.2f}"
                for part in parts
            }
            for name in names
        ]
    )


def forecasts(preset: str) -> Rows:
    """Return the simulated steps of a preset, in the order of the measured."""
    rows: Rows = load_record("gpu_forecasts")["steps"]
    return [row for row in rows if row["preset"] == preset]


def steps_table() -> Table:
    """Return what steps of whole models take, and by how much it is missed."""
    documents, calibrated = map(forecasts, PRESETS)
    return table(
        [
            {
                "model": row["model"],
                "batch": row["batch"],
                "precision": "bfloat16" if row["bfloat16"] else "float32",
                "ms": f"{1e3 * row['seconds']:.1f}",
                "h200": show_factor(by_h200["seconds"] / row["seconds"]),
                "calibrated": show_factor(own["seconds"] / row["seconds"]),
                "peak, GB": f"{row['peak_bytes'] / 1e9:.1f}",
                "simulated": show_factor(
                    by_h200["peak_bytes"] / row["peak_bytes"]
                ),
            }
            for row, by_h200, own in zip(
                load_record("gpu_steps")["steps"],
                documents,
                calibrated,
                strict=True,
            )
        ]
    )


def operators_table() -> Table:
    """Return what operators take of a step: on the GPU, and simulated."""
    rows = load_record("gpu_operators")["operators"]
    planar, last = (
        {r["operator"]: r["seconds"] for r in rows if r["step"] == name}
        for name in (TRACED, f"{TRACED} channels_last")
    )
    simulated = {
        row["operator"]: row["seconds"]
        for row in load_record("gpu_forecasts")["operators"]
    }
    return table(
        [
            {
                "ms of": what,
                "measured": f"{1e3 * planar[on_gpu]:.1f}",
                "channels_last": f"{1e3 * last[on_gpu]:.1f}",
                "simulated": f"{1e3 * simulated[on_sim]:.1f}",
            }
            for what, (on_gpu, on_sim) in OPERATORS.items()
        ]
    )
