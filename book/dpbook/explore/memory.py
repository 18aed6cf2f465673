"""The memory of a device in a step, live: what fills it, and whether it fits.

The bytes are the planner's (``planner.case``): weights and activations in 16
bits, gradients in float32, and 12 bytes for each parameter that Adam updates.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from dpbook.explore.calculator import MODELS, own_network
from dpbook.explore.figure import (
    Choice,
    Control,
    LiveFigure,
    Number,
    Shown,
    preset,
)
from dpbook.explore.planner import LINKS_OF, MEMORY_PARTS
from dpbook.explore.stacked import stacked_bars
from dpbook.formulas.transformer import RECOMPUTE
from dpbook.planner.case import Case, StepMemory
from dpbook.planner.layouts import Layout
from dpkit.sim.hardware import cluster
from dpkit.units import show_memory

SMALL = "1.3B, 24 layers"
NETWORKS = {
    SMALL: own_network(
        layers=24, width=2048, heads=16, words=32_000, sequence=4096
    )
} | MODELS
POWERS = tuple(2**i for i in range(11))
EXAMPLES = (1, 2, 4, 8, 16, 32, 64)
STAGES = (0, 1, 2, 3)
# What the bars differ in; all else is as chosen.
BY_STAGE = "stages of ZeRO"
BY_RECOMPUTE = "what is computed again"
BY_EXAMPLES = "examples of a GPU"


def show_memory_of_step(
    model: str,
    gpu: str,
    gpus: int,
    zero: str,
    recompute: str,
    examples: int,
    bars: str,
) -> Shown:
    """Show what a device holds at its peak, and what it would hold otherwise.

    Args:
        model: A name in ``NETWORKS``.
        gpu: The preset of the GPUs.
        gpus: How many there are: replicas, over which ZeRO divides.
        zero: The stage of ZeRO, from "0" to "3".
        recompute: What backward computes again, one of ``RECOMPUTE``.
        examples: Those that each GPU has in a micro-batch.
        bars: What the bars differ in.
    """
    step = Step(model, gpu)
    chosen = Layout(
        gpus, micro_batch=examples, recompute=recompute, zero=int(zero)
    )
    held = {
        ("chosen: " if layout == chosen else "") + name: step.memory(layout)
        for name, layout in _rows(chosen, bars)
    }
    picture = stacked_bars(
        {name: dict(zip(MEMORY_PARTS, each)) for name, each in held.items()},
        "memory of each GPU",
        lambda size: show_memory(int(size)),
        ("may be filled", step.room),
    )
    facts = [
        (part, show_memory(int(size)))
        for part, size in zip(MEMORY_PARTS, step.memory(chosen))
    ]
    facts.append(("examples that fit", _most_examples(step, chosen)))
    facts.append(("GPUs that it takes", _fewest_gpus(step, chosen)))
    return Shown([picture], facts, _sentence(step, chosen))


@dataclass(frozen=True)
class Step:
    """A step of one micro-batch, whose launches take no time."""

    model: str
    gpu: str

    def case(self, layout: Layout) -> Case:
        """Return the planner's case of a layout."""
        machine = cluster(layout.data, self.gpu, LINKS_OF[self.gpu][0])
        rows = layout.data * layout.micro_batch
        return Case(NETWORKS[self.model], rows, machine, host=None)

    def memory(self, layout: Layout) -> StepMemory:
        """Return the bytes of a device by purpose."""
        return self.case(layout).memory(layout)

    @property
    def room(self) -> float:
        """The bytes that may be filled."""
        return self.case(Layout(1)).room

    def fits(self, layout: Layout) -> bool:
        """Return whether a device has room for a layout."""
        return self.memory(layout).total <= self.room


def _rows(chosen: Layout, bars: str) -> Iterator[tuple[str, Layout]]:
    """Yield the layouts that have a bar, with their names."""
    if bars == BY_STAGE:
        for zero in STAGES:
            yield f"ZeRO-{zero}", chosen._replace(zero=zero)
    elif bars == BY_RECOMPUTE:
        for recompute in RECOMPUTE:
            yield recompute, chosen._replace(recompute=recompute)
    else:
        for count in sorted({*EXAMPLES[:5], chosen.micro_batch}):
            yield f"{count}", chosen._replace(micro_batch=count)


def _most_examples(step: Step, layout: Layout) -> str:
    """Return how many examples a device has room for, in words."""

    def fit(count: int) -> bool:
        return step.fits(layout._replace(micro_batch=count))

    if not fit(1):
        return "none"
    most = 1
    while fit(2 * most):
        most *= 2
    for power in reversed(range(most.bit_length() - 1)):
        if fit(most + 2**power):
            most += 2**power
    return f"{most:,} for each GPU"


def _fewest_gpus(step: Step, layout: Layout) -> str:
    """Return on how many devices a layout fits, of powers of two, in words."""
    for count in POWERS:
        if step.fits(layout._replace(data=count)):
            return f"{count:,}"
    return f"more than {POWERS[-1]:,}"


def _sentence(step: Step, layout: Layout) -> str:
    """Return what a device holds, and whether it has room for that."""
    held = step.memory(layout).total
    number = "one GPU" if layout.data == 1 else f"{layout.data:,} GPUs"
    each = "It" if layout.data == 1 else "Each"
    start = f"ZeRO-{layout.zero} on {number} ({step.gpu}). {each} holds "
    start += f"{show_memory(int(held))} at the peak, and may hold "
    start += f"{show_memory(int(step.room))}: "
    if held <= step.room:
        return f"{start}it fits."
    return f"{start}{show_memory(int(held - step.room))} too much."


_CONTROLS: dict[str, Control] = {
    "model": Choice("model", "Llama 2, 7B", tuple(NETWORKS)),
    "gpu": Choice("GPU", "h100", tuple(LINKS_OF)),
    "gpus": Number("GPUs", 8, POWERS),
    "zero": Choice("ZeRO", "0", tuple(map(str, STAGES))),
    "recompute": Choice("computed again", "none", RECOMPUTE),
    "examples": Number("examples of a GPU", 1, EXAMPLES),
    "bars": Choice(
        "bars for", BY_STAGE, (BY_STAGE, BY_RECOMPUTE, BY_EXAMPLES)
    ),
}

MEMORY = LiveFigure(
    "memory",
    "The memory of a GPU during a step",
    show_memory_of_step,
    _CONTROLS,
    presets={
        "8 examples on one GPU": preset(
            _CONTROLS, model=SMALL, gpus=1, examples=8, bars=BY_RECOMPUTE
        ),
        "7B on 8 GPUs": preset(_CONTROLS, zero="3"),
        "70B on 64 GPUs": preset(
            _CONTROLS,
            model="Llama 3, 70B",
            gpus=64,
            zero="3",
            recompute="full",
        ),
    },
)
