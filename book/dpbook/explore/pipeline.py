"""A step of a pipeline, live: its schedule, its devices and their times."""

from collections.abc import Sequence

from dpbook.explore.figure import Choice, LiveFigure, Number, Shown
from dpkit.theory.pipelines.actions import most_in_flight
from dpkit.theory.pipelines.replay import replay
from dpkit.theory.pipelines.schedules import by_name
from dpkit.theory.timeline.timeline import Timeline
from dpkit.theory.units import show_seconds

SCHEDULES = ("naive", "gpipe", "1f1b", "interleaved", "zb-h1")


def show_pipeline(
    schedule: str,
    devices: int,
    micro_batches: int,
    stages: int,
    forward: float,
    backward: float,
    hop: float,
) -> Shown:
    """Replay one step of a pipeline.

    Args:
        schedule: A name that ``theory.pipelines.schedules.by_name`` knows.
        devices: How many there are.
        micro_batches: Those of the step.
        stages: Those of each device. Only "interleaved" takes more than one.
        forward: The milliseconds of forward of a micro-batch, in all stages of
            a device.
        backward: Those of backward.
        hop: What a message takes from a device to another, in milliseconds.
    """
    per_device = stages if schedule == "interleaved" else 1
    num_stages = devices * per_device
    plan = by_name(schedule, devices, num_stages, micro_batches)
    ms = {"F": forward, "B": backward, "I": backward / 2, "W": backward / 2}
    seconds = {kind: t / 1000 / per_device for kind, t in ms.items()}
    timeline = replay(plan, seconds, hop / 1000, label=schedule)
    # Kept for backward: the inputs of a device's share of the network, so a
    # stage counts as a part of a micro-batch.
    kept = [most_in_flight(actions) / per_device for actions in plan]
    work = micro_batches * (forward + backward) / 1000
    return _shown(timeline, work, kept)


def _shown(timeline: Timeline, work: float, kept: Sequence[float]) -> Shown:
    """Return what a step comes to where a device works ``work`` seconds."""
    step = timeline.makespan
    most = max(kept)
    bubble = f"{100 * (step - work) / step:.1f} %"
    facts = [
        ("a step", show_seconds(step)),
        ("work of a device in it", show_seconds(work)),
        ("bubble, as a share of the step", bubble),
        ("micro-batches kept, by device", ", ".join(f"{k:g}" for k in kept)),
    ]
    sentence = (
        f"A step takes {show_seconds(step)}, and a device is idle for "
        f"{bubble} of it. No device keeps more than {most:g} "
        f"micro-batch{'es' if most > 1 else ''} for backward."
    )
    return Shown([timeline.draw()], facts, sentence)


MILLISECONDS = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0)

PIPELINE = LiveFigure(
    "pipeline",
    "A step of a pipeline",
    show_pipeline,
    {
        "schedule": Choice("schedule", "1f1b", SCHEDULES),
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
        "several stages a device": {"schedule": "interleaved"},
        "backward in two halves": {"schedule": "zb-h1"},
        "slow links": {"hop": 1.0},
    },
)
