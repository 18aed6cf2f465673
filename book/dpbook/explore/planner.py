"""A plan for a case, live: the reader's layout, compared with the best."""

from collections.abc import Iterator
from dataclasses import replace
from math import gcd
from typing import Any

from dpbook.explore.figure import (
    Choice,
    Control,
    LiveFigure,
    Number,
    SettingError,
    Shown,
    preset,
)
from dpbook.explore.stacked import stacked_bars
from dpbook.planner.case import Case
from dpbook.planner.layouts import Layout
from dpbook.planner.networks import NETWORKS, Network, Planned
from dpbook.planner.search import (
    LayoutCost,
    SearchResult,
    plan,
    search,
    why,
    why_not,
)
from dpkit.sim.hardware import ACCELERATORS, HOSTS, Cluster, Host, cluster
from dpkit.sim.timeline.drawing import Drawing
from dpkit.units import show_memory, show_seconds

NODE = 8  # devices
LINKS_OF = {  # inside a node, and of each device to other nodes
    "v100": ("nvlink2", "infiniband200"),
    "a100": ("nvlink3", "infiniband200"),
    "h100": ("nvlink4", "infiniband400"),
    "h200": ("nvlink4", "infiniband400"),
    "b200": ("nvlink5", "infiniband400"),
}
MEMORY_PARTS = ("weights", "gradients", "optimizer state", "activations")
SECONDS_PARTS = (
    *("products", "other kernels", "layers' messages", "launches"),
    *("bubble", "hops", "gradients' messages"),
)
EAGER = "eager"
# What it costs a program to launch a block; None: nothing that counts.
PROGRAM_HOSTS: dict[str, Host | None] = {
    EAGER: HOSTS["eager-program"],
    "compiled, or a CUDA graph": None,
}
# Device, and whether ZeRO-3 divides all -> by which factors the seconds of
# published steps were off, on average and at most: of the unseen rows in
# book/_data/comparisons.json (tests/book/test_explore_planner.py).
FACTORS = {
    ("v100", False): (1.04, 1.04),
    ("a100", False): (1.08, 1.21),
    ("a100", True): (1.14, 1.31),
    ("h100", False): (1.08, 1.15),
    ("h100", True): (1.1, 1.18),
}
POWERS = tuple(2**i for i in range(15))
# What is tried, each alone, to make a layout fit.
MOVED_ALONE = (
    *("zero", "recompute", "micro_batch"),
    *("tensor", "context", "pipeline"),
)


def nodes_of(accelerator: str, num_devices: int) -> Cluster:
    """Return nodes of 8, whose devices have a port each to other nodes.

    Example:
        >>> nodes_of("h100", 64).name
        'h100, nvlink4, nodes of 8 on infiniband400'
    """
    link, network = LINKS_OF[accelerator]
    nodes = {"ranks_per_node": NODE, "network": network}
    return cluster(num_devices, accelerator, link, **nodes)  # type: ignore[arg-type]


def network_for(model: str, sequence: int, accelerator: str) -> Network:
    """Return a network with examples of this length, in 16 bits.

    A V100 has no fast bfloat16, so that it computes in float16.
    """
    found = NETWORKS[model]
    if not isinstance(found, Planned):
        return found
    rates = ACCELERATORS[accelerator].flops_per_second
    fast = rates["bfloat16"] == rates["float16"]
    dtype = "bfloat16" if fast else "float16"
    return replace(found, sequence=sequence, dtype=dtype)


def show_planner(
    model: str,
    sequence: int,
    examples: int,
    accelerator: str,
    devices: int,
    program: str,
    zero: str,
    **cut: Any,
) -> Shown:
    """Plan the reader's layout, and search for the best.

    Args:
        model: The name of a network.
        sequence: The tokens of an example.
        examples: Those of a step, over all devices.
        accelerator: A preset; it decides the nodes and their links, too.
        devices: How many there are.
        program: How the host issues work, a name in ``PROGRAM_HOSTS``.
        zero: The stage of ZeRO, from "0" to "3".
        **cut: The other fields of :class:`Layout`, by name.
    """
    net = network_for(model, sequence, accelerator)
    machine = nodes_of(accelerator, devices)
    case = Case(net, examples, machine, host=PROGRAM_HOSTS[program])
    data = devices // (cut["tensor"] * cut["pipeline"] * cut["context"])
    layout = Layout(data, zero=int(zero), **cut)
    for is_wrong, setting, reason in _faults(case, layout):
        if is_wrong:
            raise SettingError(reason, setting)
    mine = plan(case, layout)
    found = search(case)
    rows = {"yours": mine} | ({"best": found.plans[0]} if found.plans else {})
    facts = _facts(case, rows, found)
    return Shown(_pictures(case, rows), facts, _sentence(case, mine, found))


def _pictures(case: Case, rows: dict[str, LayoutCost]) -> list[Drawing]:
    return [
        stacked_bars(
            {n: dict(zip(MEMORY_PARTS, p.memory)) for n, p in rows.items()},
            "memory of the fullest device",
            lambda size: show_memory(int(size)),
            ("may be filled", case.room),
        ),
        stacked_bars(
            {n: dict(zip(SECONDS_PARTS, p.seconds)) for n, p in rows.items()},
            "seconds of a step",
            show_seconds,
        ),
    ]


def _faults(case: Case, layout: Layout) -> Iterator[tuple[bool, str, str]]:
    """Yield what may be wrong: whether it is, the setting, and why."""
    t = layout.tensor
    p = layout.pipeline
    c = layout.context
    v = layout.chunks
    count = case.cluster.num_devices
    net = case.network
    sizes = f"{t} × {c} × {p}"
    cut = f"(devices: {count}, tensor × context × pipeline: {sizes})"
    yield layout.data == 0, "pipeline", f"too few devices {cut}"
    most = gcd(NODE, net.most_tensor)
    group = f"(tensor: {t}, a divisor of: {most})"
    reason = f"tensor groups have to divide the heads and the node {group}"
    yield most % t > 0, "tensor", reason
    left = count % (t * c * p) > 0
    yield left, "pipeline", f"devices are left over {cut}"
    shared = c > 1 and not isinstance(net, Planned)
    reason = f"this network has no sequences to share (context: {c})"
    yield shared, "context", reason
    setting = "chunks" if p <= net.num_blocks else "pipeline"
    few = f"(layers: {net.num_blocks}, stages: {p * v})"
    # At each end of a pipeline a layer may be missing.
    beyond = p > net.num_blocks or p * v > net.num_blocks + 2
    yield beyond, setting, f"too few layers {few}"
    yield from _faults_of_batch(case, layout)
    again = layout.recompute == "full" and "full" not in net.recompute
    yield again, "recompute", "this network is not counted with recomputation"
    whole = layout.zero == 3 and p > 1
    yield whole, "zero", f"ZeRO-3 goes without a pipeline (pipeline: {p})"


def _faults_of_batch(
    case: Case, layout: Layout
) -> Iterator[tuple[bool, str, str]]:
    d, _, p, b, v = layout[:5]
    sizes = f"examples: {case.batch}, replicas: {d}, micro-batch: {b}"
    reason = f"the micro-batches do not fill the batch ({sizes})"
    yield case.batch % (d * b) > 0, "micro_batch", reason
    m = case.micro_batches(layout)
    sizes = f"stages: {v}, pipeline: {p}, micro-batches: {m}"
    reason = f"several stages go round in a pipeline as a whole ({sizes})"
    yield v > 1 and (p == 1 or m % p > 0), "chunks", reason


def _facts(
    case: Case, rows: dict[str, LayoutCost], found: SearchResult
) -> list[tuple[str, str]]:
    flops = case.network.flops(case.batch)
    peak = case.cluster.accelerator.flops_per_second[case.network.dtype]
    facts = [
        ("parameters", f"{case.network.parameters / 1e9:.4g} billion"),
        ("arithmetic of a step", f"{float(f'{flops / 1e15:.3g}'):,g} PFLOP"),
    ]
    for name, each in rows.items():
        rate = flops / each.seconds.total / case.cluster.num_devices
        facts += [
            (f"{name}: data × tensor × pipeline", str(each.layout)),
            (
                f"{name}: arithmetic of a device",
                f"{rate / 1e12:.0f} TFLOP/s, "
                f"{100 * rate / peak:.0f} % of the peak",
            ),
        ]
    fit = f"{found.num_layouts:,}, of which {len(found.plans):,} fit"
    layout = rows["yours"].layout
    block = _block(case, layout)
    trust = how_exact(case, layout)
    return [*facts, block, ("layouts tried", fit), trust]


def _block(case: Case, layout: Layout) -> tuple[str, str]:
    """Return what a block takes: its device with its messages, its host."""
    parts = case.parts(layout)
    device = show_seconds(parts.block.seconds + parts.messages)
    launched = "no time for its launches"
    if case.host is not None:
        launched = f"launched in {show_seconds(parts.launched)}"
    return "yours: a block and micro-batch", f"{device}, {launched}"


def how_exact(case: Case, layout: Layout) -> tuple[str, str]:
    """Return how far off published steps of such layouts were."""
    name = case.cluster.accelerator.name
    sharded = layout.zero == 3
    factors = "none is published that was compared"
    if (name, sharded) in FACTORS:
        mean, most = FACTORS[name, sharded]
        factors = f"{mean:g} on average, {most:g} at most"
    what = "with ZeRO-3" if sharded else "without ZeRO-3"
    return f"published steps on {name} {what} were off by a factor of", factors


def _sentence(case: Case, mine: LayoutCost, found: SearchResult) -> str:
    took = show_seconds(mine.seconds.total)
    if mine.memory.total > case.room:
        reason = why_not(case, mine.layout)
        yours = f"Yours, {reason} {_what_would_fit(case, mine.layout)}"
    else:
        yours = f"Yours fits and takes {took}."
    if not found.plans:
        return f"{yours} No layout fits on these devices."
    best = found.plans[0]
    if mine.seconds.total <= best.seconds.total * 1.001:
        lost = _lost(mine) if mine.memory.total <= case.room else ""
        return f"{yours} No layout that fits is faster.{lost}"
    seconds = show_seconds(best.seconds.total)
    yours = f"{yours} The best takes {seconds}."
    if (
        mine.memory.total > case.room
        or mine.seconds.total < best.seconds.total
    ):
        return yours
    return f"{yours} {why(best, mine)}"


def _lost(mine: LayoutCost) -> str:
    """Return what the best layout loses most to, besides its products."""
    parts = dict(zip(SECONDS_PARTS, mine.seconds))
    del parts["products"]
    most = max(parts, key=lambda name: parts[name])
    share = f"{100 * parts[most] / mine.seconds.total:.0f} %"
    return f" Besides products its largest part is {most}, {share} of it."


def _what_would_fit(case: Case, layout: Layout) -> str:
    """Return which control, moved alone, makes a layout fit.

    If several values of a control do, the one with the fastest step counts.
    """
    found: dict[str, tuple[float, Any]] = {}
    for name in MOVED_ALONE:
        for value in CONTROLS[name].moves:
            moved = _moved(case, layout, name, value)
            if any(wrong for wrong, *_ in _faults(case, moved)):
                continue
            cost = plan(case, moved)
            if cost.memory.total <= case.room:
                new = cost.seconds.total, value
                found[name] = min(found.get(name, new), new)
    if not found:
        return "No control, moved alone, makes it fit."
    # "pipeline: devices in a row" is called "pipeline" here.
    ways = [
        f"{CONTROLS[name].label.split(':')[0]}: {value}"
        for name, (_, value) in sorted(found.items(), key=lambda x: x[1][0])
    ]
    return f"It would fit with {', or with '.join(ways)}."


def _moved(case: Case, layout: Layout, name: str, value: Any) -> Layout:
    """Return a layout with one field moved; replicas take what is left."""
    value = int(value) if name == "zero" else value
    moved = layout._replace(**{name: value})
    count = case.cluster.num_devices
    others = moved.tensor * moved.context * moved.pipeline
    return moved._replace(data=count // others)


SEQUENCES = tuple(1024 * 2**i for i in range(8))
# No control divides experts, so networks with experts are left out.
MODELS = tuple(name for name, net in NETWORKS.items() if not net.experts)
TRANSFORMERS = tuple(
    name for name in MODELS if isinstance(NETWORKS[name], Planned)
)

CONTROLS: dict[str, Control] = {
    "model": Choice("model", "7B", MODELS),
    "sequence": Number(
        "tokens of an example",
        4096,
        SEQUENCES,
        shown_for=("model", TRANSFORMERS),
    ),
    "examples": Number("examples of a step", 1024, POWERS[4:]),
    "accelerator": Choice("device", "h100", tuple(LINKS_OF)),
    "devices": Number("devices", 64, POWERS[3:]),
    "program": Choice("program", EAGER, tuple(PROGRAM_HOSTS)),
    "tensor": Number("tensor: devices that share a layer", 2, POWERS[:4]),
    "context": Number(
        "context: devices that share a sequence",
        1,
        POWERS[:5],
        shown_for=("model", TRANSFORMERS),
    ),
    "pipeline": Number("pipeline: devices in a row", 4, POWERS[:8]),
    "chunks": Number("stages of a device", 1, POWERS[:5]),
    "micro_batch": Number("examples of a micro-batch", 1, POWERS[:9]),
    "recompute": Choice("recompute", "none", ("none", "selective", "full")),
    "zero": Choice("stage of ZeRO", "1", ("0", "1", "2", "3")),
}


PLANNER = LiveFigure(
    "planner",
    "A plan for a run",
    show_planner,
    CONTROLS,
    presets={
        "ResNet-50 on 8 V100s": preset(
            CONTROLS,
            model="ResNet-50",
            accelerator="v100",
            devices=8,
            examples=2048,
            tensor=1,
            pipeline=1,
            micro_batch=256,
        ),
        "7 billion on 64 H100s": preset(
            CONTROLS, tensor=1, pipeline=1, micro_batch=4, zero="3"
        ),
        "405 billion on 16,384 H100s": preset(
            CONTROLS,
            model="405B",
            sequence=8192,
            examples=2048,
            devices=16_384,
            tensor=8,
            pipeline=16,
            chunks=8,
            zero="2",
        ),
        "the same with 131,072 tokens": preset(
            CONTROLS,
            model="405B",
            sequence=131_072,
            examples=128,
            devices=16_384,
            tensor=8,
            context=16,
            pipeline=16,
            chunks=8,
            zero="2",
        ),
    },
)
