"""A data-parallel step, live: where two devices become slower than one."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from dpbook.explore.curves import Axis, Behind, Curve, draw_curves, even
from dpbook.explore.figure import (
    Before,
    Choice,
    LiveFigure,
    Number,
    SettingError,
    Shown,
)
from dpbook.formulas.gradient_sums import SUMS
from dpbook.formulas.networks import COUNTED, network
from dpbook.formulas.parallel_step import ParallelStep, Stretch, parallel_step
from dpkit.sim.clock import Record, Row, Span
from dpkit.sim.hardware import Cluster, cluster
from dpkit.sim.timeline import Bar, draw_timeline
from dpkit.sim.timeline.drawing import Drawing
from dpkit.units import show_seconds

MOST_DEVICES = 8  # devices
# A curve that is more times as high would press the others to the ground.
FAR = 4
ONE_PROCESS = "one for all devices"
EACH = "one for each device"
BUCKETS = "one each, sums during backward"
PROGRAMS = (ONE_PROCESS, EACH, BUCKETS)
ALL = "in all"
PER_DEVICE = "on each device"
COUNT_WORDS = "No One Two Three Four Five Six Seven Eight".split()
CARDS = "k80 p100 v100-pcie v100 rtx4090 a100 h100".split()
WIRES = "pcie3 pcie4 pcie5 nvlink2 nvlink3 nvlink4".split()
HOST_NAMES = "eager eager-modules eager-program".split()


class Steps(NamedTuple):
    """A step on one to eight devices, and a machine for one of them."""

    by_count: Mapping[int, ParallelStep]
    machine: Cluster  # of as many devices as the step that is shown
    shared: bool  # whether the batch stays the same on more devices

    @property
    def shown(self) -> ParallelStep:
        """The step on the devices of the machine."""
        return self.by_count[self.machine.num_devices]

    @property
    def one(self) -> ParallelStep:
        """The step on one device."""
        return self.by_count[1]

    @property
    def longest(self) -> float:
        """The seconds of the longest step; no part of a step takes more."""
        return max(step.seconds for step in self.by_count.values())

    @property
    def curve(self) -> Curve:
        """The seconds of a step by the number of devices."""
        return [(k, step.seconds) for k, step in self.by_count.items()]


def show_step(before: Before | None = None, **settings: Any) -> Shown:
    """Show a step on one to eight devices, and one of them in time.

    Args:
        before: What was shown before a control moved, if there is a change.
        settings: The arguments of :func:`compute`.
    """
    steps = compute(**settings)
    machine = steps.machine
    label = f"{settings['name']} on {machine.num_devices} × {machine.name}"
    facts = _facts(steps)
    sentence = _sentence(steps)
    title = (
        f"seconds of a step on 1 to {MOST_DEVICES} devices: {_spoken(steps)}"
    )
    behind = None
    if before:
        was = compute(**before.settings)
        took = show_seconds(was.shown.seconds)
        facts.insert(1, ("a step before", took))
        sentence += f" Before ({before.changes}) a step took {took}"
        title += f"; before ({before.changes}): {_spoken(was)}"
        if was.longest <= FAR * steps.longest:
            behind = was
            sentence += "."
        else:
            sentence += ", too long to be drawn beside these curves."
    pictures = [_draw_step(steps, label), _draw_seconds(steps, title, behind)]
    return Shown(pictures, facts, sentence)


def compute(
    name: str,
    images: int,
    counted: str,
    devices: int,
    accelerator: str,
    link: str,
    host: str,
    processes: str,
    algorithm: str,
) -> Steps:
    """Compute a step on each number of devices from one to eight.

    Args:
        name: The network: LeNet, ResNet-18 or "wide".
        images: Those of the batch, or those of each device.
        counted: Which of the two: "in all" or "on each device".
        devices: On how many devices the step is that is shown.
        accelerator: A preset.
        link: A preset.
        host: A preset.
        processes: How devices are driven, a name in ``PROGRAMS``.
        algorithm: How gradients are added up.

    Raises:
        SettingError: there are fewer images in all than devices.
    """
    shared = counted == ALL
    if images < MOST_DEVICES and shared:
        raise SettingError(
            f"some devices have nothing to do (images: {images})", "images"
        )
    hosts = "one" if processes == ONE_PROCESS else "per_device"
    machine = cluster(
        devices, accelerator=accelerator, link=link, host=host, hosts=hosts
    )
    found = {
        k: parallel_step(
            network(name),
            images if shared else k * images,
            replace(machine, num_devices=k),
            algorithm=algorithm,
            in_buckets=processes == BUCKETS,
        )
        for k in range(1, MOST_DEVICES + 1)
    }
    return Steps(found, machine, shared)


def _parts(step: ParallelStep) -> dict[str, float]:
    """Return what the seconds of a step are for; some go on at once."""
    return {
        "launching": step.busy("host", "launches"),
        "computing": step.busy("device 0", "computes"),
        "adding up gradients": step.gradients,
    }


def _facts(steps: Steps) -> list[tuple[str, str]]:
    step = steps.shown
    facts = [("a step", show_seconds(step.seconds))]
    facts.append(("on one device", show_seconds(steps.one.seconds)))
    facts += [(n, show_seconds(t)) for n, t in _parts(step).items()]
    facts.append(("launches of one process", f"{step.launches:,}"))
    gain = steps.one.seconds / step.seconds
    if not steps.shared:
        gain *= steps.machine.num_devices
    facts.append(("images a second, against one device", f"{gain:.2f} times"))
    return facts


def _sentence(steps: Steps) -> str:
    """Return how long the step is against one device, and why."""
    step = steps.shown
    k = steps.machine.num_devices
    one = steps.one.seconds
    start = f"One device takes {show_seconds(one)}"
    if k > 1:
        start = f"{COUNT_WORDS[k]} devices {_against(step.seconds, one)} one"
        if not steps.shared:
            start += f", for {k} times the images"
    parts = _parts(step)
    most = max(parts, key=lambda part: parts[part])
    what = {
        "launching": f"{step.launches:,} launches by one process take",
        "computing": "a device computes for",
        "adding up gradients": "adding up gradients takes",
    }[most]
    share = parts[most] / step.seconds
    return f"{start}: {what} {100 * share:.0f} % of the step.{_sent(step)}"


def _against(seconds: float, one: float) -> str:
    """Return how a step compares with the step of one device.

    Example:
        >>> _against(1.57, 1), _against(0.5, 1), _against(1.001, 1)
        ('take 1.57 times as long as', 'are 2.00 times as fast as', 'take as \
long as')
    """
    factor = seconds / one
    if abs(factor - 1) < 0.005:
        return "take as long as"
    if factor < 1:
        return f"are {1 / factor:.2f} times as fast as"
    return f"take {factor:.2f} times as long as"


def _sent(step: ParallelStep) -> str:
    """Return how long gradients are sent, and how much backward hides."""
    if not step.gradients:
        return ""
    took = f" The gradients take {show_seconds(step.gradients)} to send"
    hidden = step.hidden
    if not hidden:
        return f"{took}, all of it after backward."
    if step.gradients - hidden < 1e-3 * step.gradients:
        return f"{took}, and backward hides all of that."
    return f"{took}, and backward hides {show_seconds(hidden)} of that."


def _draw_step(steps: Steps, label: str) -> Drawing:
    """Draw the host, the first two devices and the last one."""
    step = steps.shown
    k = steps.machine.num_devices
    drawn = sorted({0, min(1, k - 1), k - 1})
    names = {f"device {r}" for r in drawn} | {"host"}
    stretches = [s for s in step.stretches if s.device in names]
    issued = max(s.end for s in stretches if s.device == "host")
    if issued < step.seconds:
        wait = Stretch(
            device="host",
            stream="launches",
            what="wait",
            start=issued,
            end=step.seconds,
            busy=0,
        )
        stretches.append(wait)
    spans: list[Span] = []
    rows: dict[Row, list[Bar]] = {}
    for s in stretches:
        if s.end == s.start:
            continue
        kind = "launch" if s.device == "host" else KINDS.get(s.what, s.what)
        kind = "wait" if s.what == "wait" else kind
        span = Span(
            device=s.device,
            stream=s.stream,
            name=s.what,
            kind=kind,
            start=s.start,
            end=s.end,
        )
        spans.append(span)
        bar = Bar(span, start=s.start, end=s.end, busy=s.busy, count=s.count)
        rows.setdefault((s.device, s.stream), []).append(bar)
    return draw_timeline(Record(spans, label=label), 0.0, rows)


KINDS = {"images": "copy", "gradients": "copy"}


def _draw_seconds(steps: Steps, title: str, was: Steps | None) -> Drawing:
    """Draw the seconds of a step, and what they are for, over devices."""
    curves = {"a step": steps.curve}
    for part in _parts(steps.one):
        curves[part] = [
            (k, _parts(s)[part]) for k, s in steps.by_count.items()
        ]
    one = steps.one.seconds
    curves["ideal"] = [
        (k, one / k if steps.shared else one) for k in steps.by_count
    ]
    most = steps.longest
    behind = None
    if was:
        most = max(most, was.longest)
        mark = was.machine.num_devices
        behind = Behind("a step before", was.curve, mark)
    return draw_curves(
        curves,
        title,
        Axis("devices", str, list(steps.by_count), logarithmic=False),
        Axis("time", show_seconds, even(most), logarithmic=False),
        mark=steps.machine.num_devices,
        chosen="a step",
        behind=behind,
    )


def _spoken(steps: Steps) -> str:
    """Return the seconds by devices for those who see no curve."""
    return ", ".join(show_seconds(seconds) for _, seconds in steps.curve)


STEP = LiveFigure(
    "step",
    "A data-parallel step on one to eight devices",
    show_step,
    {
        "name": Choice("network", "LeNet", COUNTED),
        "images": Number("images", 256, [2**i for i in range(3, 15)]),
        "counted": Choice("counted", ALL, (ALL, PER_DEVICE)),
        "devices": Number("devices", 2, tuple(range(1, MOST_DEVICES + 1))),
        "processes": Choice("processes", ONE_PROCESS, PROGRAMS),
        "algorithm": Choice("sums of gradients by", "star", SUMS),
        "accelerator": Choice("accelerator", "v100-pcie", tuple(CARDS)),
        "link": Choice("link", "pcie3", WIRES),
        "host": Choice("host", "eager", HOST_NAMES),
    },
    open_at_start=("name", "images", "devices"),
    keeps_before=True,
    presets={
        "ResNet-18": {
            "name": "ResNet-18",
            "counted": PER_DEVICE,
        },
        "a process for each device": {"processes": EACH},
        "eight H100, as in large runs": {
            "name": "ResNet-18",
            "counted": PER_DEVICE,
            "devices": 8,
            "processes": BUCKETS,
            "algorithm": "library",
            "accelerator": "h100",
            "link": "nvlink4",
        },
    },
)
