"""The picture of the front page: one training step on four devices."""

from dataclasses import replace

from dpkit.lab.overlap.runs import simulated_step, wide
from dpkit.theory.timeline.timeline import Timeline

ROWS = {"compute": "computes", "stream 1": "sends"}


def one_step(num_devices: int = 4, rows: int = 2048) -> Timeline:
    """Return what devices compute and send in a data-parallel step.

    A network of six dense layers; gradients are reduced by a ring, beside
    backward. What devices receive and add, and what their hosts do, is left
    out.
    """
    step = simulated_step(
        16,
        make=wide,
        num_devices=num_devices,
        rows=rows,
        link="ethernet100",
    )
    found = step.timeline
    spans = [
        replace(span, stream=ROWS[span.stream])
        for span in found.spans
        if span.device.startswith("sim") and span.stream in ROWS
    ]
    return Timeline(spans, label=found.label)
