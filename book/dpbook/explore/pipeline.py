"""A step of a pipeline, live: by one schedule, above another one."""

from typing import NamedTuple

from dpbook.explore.figure import Choice, LiveFigure, Number, Shown
from dpkit.schedules import by_name, most_in_flight
from dpkit.schedules.replay import replay
from dpkit.sim.timeline import Timeline
from dpkit.units import show_seconds

SCHEDULES = ("naive", "gpipe", "1f1b", "interleaved", "zb-h1")
NOTHING = "nothing"
# "interleaved" can only be the first one, for which its control is shown.
OTHERS = (NOTHING, *(name for name in SCHEDULES if name != "interleaved"))


class Step(NamedTuple):
    """A step by one schedule, and what each device keeps for backward."""

    schedule: str
    timeline: Timeline
    kept: list[float]  # micro-batches, at the most, by device


def show_pipeline(
    schedule: str,
    compare: str,
    devices: int,
    micro_batches: int,
    stages: int,
    forward: float,
    backward: float,
    hop: float,
) -> Shown:
    """Replay one step of a pipeline, and the same step by another schedule.

    Args:
        schedule: A name that ``dpkit.schedules.by_name`` knows.
        compare: The schedule below it, on the same scale of time. "nothing",
            or the same name again: there is none.
        devices: How many there are.
        micro_batches: Those of the step.
        stages: Those of each device. Only "interleaved" takes more than one.
        forward: The milliseconds of forward of a micro-batch, in all stages of
            a device.
        backward: Those of backward.
        hop: What a message takes from a device to another, in milliseconds.
    """
    names = [schedule]
    if compare not in (NOTHING, schedule):
        names.append(compare)
    ms = {"F": forward, "B": backward, "I": backward / 2, "W": backward / 2}
    steps = []
    for name in names:
        per_device = stages if name == "interleaved" else 1
        plan = by_name(
            name,
            num_devices=devices,
            num_stages=devices * per_device,
            num_micro_batches=micro_batches,
        )
        seconds = {kind: t / 1000 / per_device for kind, t in ms.items()}
        timeline = replay(plan, seconds, hop / 1000, label=name)
        # Kept for backward: the inputs of a device's share of the network, so
        # a stage counts as a part of a micro-batch.
        kept = [most_in_flight(actions) / per_device for actions in plan]
        steps.append(Step(name, timeline, kept))
    return _shown(steps, micro_batches * (forward + backward) / 1000)


def _shown(steps: list[Step], work: float) -> Shown:
    """Show steps on one scale, where a device works ``work`` seconds."""
    facts = {
        "schedule": [step.schedule for step in steps],
        "a step": [show_seconds(step.timeline.makespan) for step in steps],
        "work of a device in it": [show_seconds(work)] * len(steps),
        "bubble, as a share of the step": [_bubble(s, work) for s in steps],
        "micro-batches kept, by device": [
            ", ".join(f"{k:g}" for k in step.kept) for step in steps
        ],
    }
    longest = max(step.timeline.makespan for step in steps)
    return Shown(
        [step.timeline.draw(longest) for step in steps],
        [(name, *values) for name, values in facts.items()],
        " ".join(_sentence(step, work) for step in steps),
    )


def _bubble(step: Step, work: float) -> str:
    seconds = step.timeline.makespan
    return f"{100 * (seconds - work) / seconds:.1f} %"


def _sentence(step: Step, work: float) -> str:
    seconds = show_seconds(step.timeline.makespan)
    most = max(step.kept)
    return (
        f"With {step.schedule} a step takes {seconds}, with a bubble of "
        f"{_bubble(step, work)}, and a device keeps up to {most:g} "
        f"micro-batch{'es' if most > 1 else ''}."
    )


MILLISECONDS = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0)

PIPELINE = LiveFigure(
    "pipeline",
    "A step of a pipeline",
    show_pipeline,
    {
        "schedule": Choice("schedule", "1f1b", SCHEDULES),
        "compare": Choice("compare with", "gpipe", OTHERS),
        "devices": Number("devices", 4, (1, 2, 3, 4, 5, 6, 7, 8)),
        "micro_batches": Number(
            "micro-batches", 8, (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
        ),
        "stages": Number(
            "stages a device",
            2,
            (1, 2, 3, 4),
            shown_for=("schedule", ("interleaved",)),
        ),
        "forward": Number("forward", 1.0, MILLISECONDS, "ms"),
        "backward": Number("backward", 2.0, (*MILLISECONDS, 8.0), "ms"),
        "hop": Number("hop", 0.0, (0.0, 0.1, 0.2, 0.5, 1.0, 2.0), "ms"),
    },
    presets={
        "one micro-batch": {"schedule": "gpipe", "micro_batches": 1},
        "several stages a device": {
            "schedule": "interleaved",
            "compare": "1f1b",
        },
        "backward in two halves": {"schedule": "zb-h1", "compare": "1f1b"},
        "slow links": {"hop": 1.0},
    },
)
