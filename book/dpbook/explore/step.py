"""A data-parallel step, live: where two devices become slower than one."""

from dataclasses import replace

from dpbook.explore.curves import Axis, draw_curves, even
from dpbook.explore.figure import (
    Choice,
    LiveFigure,
    Number,
    SettingError,
    Shown,
)
from dpbook.formulas.gradient_sums import SUMS
from dpbook.formulas.networks import COUNTED, network
from dpbook.formulas.parallel_step import ParallelStep, Stretch, parallel_step
from dpkit.theory.clock.record import Record, Row, Span
from dpkit.theory.hardware.clusters import Cluster, cluster
from dpkit.theory.timeline.bars import Bar
from dpkit.theory.timeline.drawing import Drawing
from dpkit.theory.timeline.gantt import draw_timeline
from dpkit.theory.units import show_seconds

MOST_DEVICES = 8  # devices
ONE_PROCESS = "one for all devices"
EACH = "one for each device"
BUCKETS = "one each, sums during backward"
PROGRAMS = (ONE_PROCESS, EACH, BUCKETS)
ALL = "in all"
PER_DEVICE = "on each device"
COUNT_WORDS = "No One Two Three Four Five Six Seven Eight".split()
Steps = dict[int, ParallelStep]  # by the number of devices
CARDS = "k80 p100 v100-pcie v100 rtx4090 a100 h100".split()
WIRES = "pcie3 pcie4 pcie5 nvlink2 nvlink3 nvlink4".split()
HOST_NAMES = "eager eager-modules eager-program eager-fast".split()


def show_step(
    name: str,
    images: int,
    counted: str,
    devices: int,
    accelerator: str,
    link: str,
    host: str,
    processes: str,
    algorithm: str,
) -> Shown:
    """Compute a step on one to eight devices, and show one of them.

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
    work = name, images, shared, algorithm, processes == BUCKETS
    return _shown(_steps(machine, *work), machine, name, shared)


def _steps(
    machine: Cluster,
    name: str,
    images: int,
    shared: bool,
    algorithm: str,
    in_buckets: bool,
) -> Steps:
    """Return the step on one device, and on each number of them."""
    found = {}
    for k in range(1, MOST_DEVICES + 1):
        some = replace(machine, num_devices=k)
        batch = images if shared else k * images
        found[k] = parallel_step(
            network(name),
            batch,
            some,
            algorithm=algorithm,
            in_buckets=in_buckets,
        )
    return found


def _shown(steps: Steps, machine: Cluster, name: str, shared: bool) -> Shown:
    """Show the step on the devices of a machine, beside all others."""
    k = machine.num_devices
    step = _draw_step(steps[k], k, f"{name} on {machine.name}")
    pictures = [step, _draw_seconds(steps, k, shared)]
    return Shown(
        pictures, _facts(steps, k, shared), _sentence(steps, k, shared)
    )


def _parts(step: ParallelStep) -> dict[str, float]:
    """Return what the seconds of a step are for; some go on at once."""
    return {
        "launching": step.busy("host", "launches"),
        "computing": step.busy("device 0", "computes"),
        "adding up gradients": step.gradients,
    }


def _facts(steps: Steps, k: int, shared: bool) -> list[tuple[str, str]]:
    step = steps[k]
    facts = [("a step", show_seconds(step.seconds))]
    facts.append(("on one device", show_seconds(steps[1].seconds)))
    facts += [(n, show_seconds(t)) for n, t in _parts(step).items()]
    facts.append(("launches of one process", f"{step.launches:,}"))
    gain = steps[1].seconds / step.seconds * (1 if shared else k)
    facts.append(("images a second, against one device", f"{gain:.2f} times"))
    return facts


def _sentence(steps: Steps, k: int, shared: bool) -> str:
    """Return how long the step is against one device, and why."""
    step = steps[k]
    one = steps[1].seconds
    start = f"One device takes {show_seconds(one)}"
    if k > 1:
        start = f"{COUNT_WORDS[k]} devices {_against(step.seconds, one)} one"
        if not shared:
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


def _draw_step(step: ParallelStep, k: int, label: str) -> Drawing:
    """Draw the host, the first two devices and the last one."""
    drawn = sorted({0, min(1, k - 1), k - 1})
    names = {f"device {r}" for r in drawn} | {"host"}
    stretches = [s for s in step.stretches if s.place in names]
    issued = max(s.end for s in stretches if s.place == "host")
    if issued < step.seconds:
        wait = Stretch(
            place="host",
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
        kind = "launch" if s.place == "host" else KINDS.get(s.what, s.what)
        kind = "wait" if s.what == "wait" else kind
        span = Span(
            device=s.place,
            stream=s.stream,
            name=s.what,
            kind=kind,
            start=s.start,
            end=s.end,
        )
        spans.append(span)
        bar = Bar(span, start=s.start, end=s.end, busy=s.busy, count=s.count)
        rows.setdefault((s.place, s.stream), []).append(bar)
    if len(drawn) < k:
        label += f" (devices 0, 1 and {k - 1} of {k})"
    return draw_timeline(Record(spans, label=label), 0.0, rows)


KINDS = {"images": "copy", "gradients": "copy"}


def _draw_seconds(steps: Steps, k: int, shared: bool) -> Drawing:
    """Draw the seconds of a step, and what they are for, over devices."""
    curves = {"a step": [(n, step.seconds) for n, step in steps.items()]}
    for part in _parts(steps[1]):
        curves[part] = [(n, _parts(step)[part]) for n, step in steps.items()]
    one = steps[1].seconds
    ideal = [(n, one / n if shared else one) for n in steps]
    curves["ideal"] = ideal
    most = max(seconds for curve in curves.values() for _, seconds in curve)
    x = Axis("devices", str, list(steps), logarithmic=False)
    y = Axis("time", show_seconds, even(most), logarithmic=False)
    title = "seconds of a step by devices"
    return draw_curves(curves, title, x, y, mark=k, chosen="a step")


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
