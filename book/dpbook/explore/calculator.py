"""A calculator for a run: whether it fits, how long it takes, what it costs.

The layout is the planner's: the fastest that fits, or the one that needs the
least memory.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import ceil
from typing import NamedTuple

from dpbook.explore.figure import (
    Choice,
    Control,
    LiveFigure,
    Number,
    SettingError,
    Shown,
    preset,
)
from dpbook.explore.planner import (
    EAGER,
    MEMORY_PARTS,
    PROGRAM_HOSTS,
    SECONDS_PARTS,
    how_exact,
)
from dpbook.explore.stacked import stacked_bars
from dpbook.planner.case import Case
from dpbook.planner.layouts import Layout
from dpbook.planner.machines import MACHINES, NODE, Machine
from dpbook.planner.networks import NETWORKS, Planned
from dpbook.planner.search import MEMORY_WORDS, LayoutCost, search
from dpkit.sim.timeline.drawing import Drawing
from dpkit.units import show_memory, show_seconds

OWN = "your own"


def _llama(name: str, **changes: int) -> Planned:
    """Return a network of the planner, with other sizes."""
    known = NETWORKS[name]
    assert isinstance(known, Planned)
    return replace(known, **changes)  # type: ignore[arg-type]


# Sizes of 13B and 8B: pytorch/torchtitan, torchtitan/models/llama/__init__.py,
# commit 0413364.
MODELS: dict[str, Planned] = {
    "Llama 2, 7B": _llama("7B"),
    "Llama 2, 13B": _llama(
        "7B",
        layers=40,
        hidden=5120,
        heads=40,
        key_heads=40,
        feed_forward=13_824,
    ),
    "Llama 3, 8B": _llama(
        "70B", layers=32, hidden=4096, heads=32, feed_forward=14_336
    ),
    "Llama 3, 70B": _llama("70B"),
    "Llama 3, 405B": _llama("405B"),
}
# A weight in 16 bits, its gradient in float32, and 12 bytes of Adam.
BYTES_OF_PARAMETER = 18
MOST_MACHINES = 2048
DAY = 86_400.0
POWERS = tuple(2**i for i in range(12))
_WORDS_OF_RECOMPUTE = {
    "none": "nothing is computed again",
    "selective": "norms and activation functions are computed again",
    "full": "layers are computed again",
}


class Run(NamedTuple):
    """What is trained, on what, for how long."""

    case: Case
    name: str  #: of the machine
    machine: Machine
    num_machines: int
    tokens: float  #: of the whole run
    price: float  #: of a machine for an hour; 0: not given


def show_run(
    model: str,
    layers: int,
    width: int,
    heads: int,
    words: int,
    sequence: int,
    examples: int,
    machine: str,
    machines: int,
    program: str,
    tokens: float,
    price: float,
) -> Shown:
    """Plan a run, and say what comes of it.

    Args:
        model: A name in ``MODELS``, or ``OWN``.
        layers: Those of a network that is ``OWN``.
        width: The values of a token.
        heads: The heads of attention.
        words: The words that it knows.
        sequence: The tokens of an example.
        examples: Those of a step, over all GPUs.
        machine: A name in ``MACHINES``.
        machines: How many there are.
        program: How the host issues work, a name in ``PROGRAM_HOSTS``.
        tokens: Those of the run, in billions.
        price: Of a machine for an hour, in any currency; 0: it is not counted.
    """
    kind = MACHINES[machine]
    if model == OWN:
        net = own_network(
            layers=layers,
            width=width,
            heads=heads,
            words=words,
            sequence=sequence,
        )
    else:
        net = replace(MODELS[model], sequence=sequence)
    case, cost = fastest(
        net, examples, machine=kind, num_machines=machines, program=program
    )
    run = Run(
        case,
        machine,
        machine=kind,
        num_machines=machines,
        tokens=tokens * 1e9,
        price=price,
    )
    if cost is None:
        raise SettingError(
            "no layout uses all GPUs: the examples of a step do not divide "
            f"among them (examples: {examples}, GPUs: {machines * NODE})",
            "examples",
        )
    fewest = dict(_fewest(net, examples, program))
    facts = _facts(run, cost, fewest)
    return Shown(
        _pictures(run, cost), facts, _verdict(run, cost, fewest[machine])
    )


def own_network(
    *, layers: int, width: int, heads: int, words: int, sequence: int
) -> Planned:
    """Return a network that is built like Llama 2, of any size.

    Its MLP is 8/3 as wide as a token, rounded up to a multiple of 256.

    Raises:
        SettingError: the heads do not divide the width.

    Example:
        >>> net = own_network(layers=32, width=4096, heads=32,
        ...                   words=32_000, sequence=4096)
        >>> f"{net.parameters / 1e9:.2f} billion"
        '6.74 billion'
    """
    if width % heads:
        raise SettingError(
            "the heads of attention have to divide the width "
            f"(width: {width}, heads: {heads})",
            "heads",
        )
    return Planned(
        layers=layers,
        hidden=width,
        heads=heads,
        vocabulary=words,
        sequence=sequence,
        feed_forward=256 * ceil(width * 8 / 3 / 256),
        gated=True,
        tied=False,
        dropout=False,
    )


def fastest(
    net: Planned,
    examples: int,
    *,
    machine: Machine,
    num_machines: int,
    program: str = EAGER,
) -> tuple[Case, LayoutCost | None]:
    """Return the case, and its fastest layout that fits.

    If none fits, it is the layout that needs the least memory, and if there
    is no layout, None.
    """
    case = _case(
        net, examples, machine=machine, count=num_machines, program=program
    )
    found = search(case)
    return case, found.plans[0] if found.plans else found.smallest


def _case(
    net: Planned, examples: int, *, machine: Machine, count: int, program: str
) -> Case:
    if machine.accelerator == "v100":  # it has no fast bfloat16
        net = replace(net, dtype="float16")
    host = PROGRAM_HOSTS[program]
    return Case(net, examples, machine.cluster(count), host=host)


def _fewest(
    net: Planned, examples: int, program: str
) -> Iterator[tuple[str, int | None]]:
    """Yield the fewest machines of each kind on which a run fits.

    Counts are powers of two. None: it fits on no number that was tried.
    """
    for name, machine in MACHINES.items():
        yield name, _fewest_of(machine, net, examples, program)


def _fewest_of(
    machine: Machine, net: Planned, examples: int, program: str
) -> int | None:
    whole = net.parameters * BYTES_OF_PARAMETER
    count = 1
    while count <= MOST_MACHINES:
        case = _case(
            net, examples, machine=machine, count=count, program=program
        )
        # All GPUs together hold the parameters once at least.
        if case.room * NODE * count >= whole and _fits(case):
            return count
        count *= 2
    return None


def _fits(case: Case) -> bool:
    layouts = case.layouts()
    return any(case.memory(layout).total <= case.room for layout in layouts)


def _pictures(run: Run, cost: LayoutCost) -> list[Drawing]:
    return [
        stacked_bars(
            {"a GPU": dict(zip(MEMORY_PARTS, cost.memory))},
            "memory of the fullest GPU",
            lambda size: show_memory(int(size)),
            ("may be filled", run.case.room),
        ),
        stacked_bars(
            {"a step": dict(zip(SECONDS_PARTS, cost.seconds))},
            "seconds of a step",
            show_seconds,
        ),
    ]


def _does_fit(run: Run, cost: LayoutCost) -> bool:
    return cost.memory.total <= run.case.room


def _facts(
    run: Run, cost: LayoutCost, fewest: Mapping[str, int | None]
) -> list[tuple[str, str]]:
    parameters = run.case.network.parameters
    whole = int(parameters * BYTES_OF_PARAMETER)
    held = show_memory(int(cost.memory.total))
    room = show_memory(int(run.case.room))
    gpus = run.num_machines * NODE
    kind = f"{run.machine.accelerator.upper()}, {run.machine.gigabytes} GB"
    facts = [
        (f"GPUs of {run.num_machines} {run.name}", f"{gpus:,} {kind}"),
        ("parameters", f"{parameters / 1e9:.4g} billion"),
        ("weights, gradients and Adam's averages", show_memory(whole)),
        ("the fullest GPU holds", f"{held}; {room} may be filled"),
    ]
    if _does_fit(run, cost):
        facts += _facts_of_time(run, cost)
    return [
        *facts,
        ("layout", words_of(cost.layout)),
        ("the fewest machines that it fits on", _by_count(fewest)),
        ("to try a script on GPUs like these", _command(run)),
    ]


def _by_count(fewest: Mapping[str, int | None]) -> str:
    """Return which machines it fits on, by how many of them.

    Example:
        >>> _by_count({"a": 2, "b": 1, "c": 2, "d": None})
        '1 b; 2 a, c'
    """
    found: dict[int, list[str]] = {}
    for name, count in fewest.items():
        if count is not None:
            found.setdefault(count, []).append(name)
    parts = [f"{n} {', '.join(found[n])}" for n in sorted(found)]
    return "; ".join(parts) or f"none, up to {MOST_MACHINES:,}"


def _seconds_of_run(run: Run, cost: LayoutCost) -> float:
    network = run.case.network
    assert isinstance(network, Planned)
    tokens_of_step = run.case.batch * network.sequence
    return run.tokens / tokens_of_step * cost.seconds.total


def _facts_of_time(run: Run, cost: LayoutCost) -> list[tuple[str, str]]:
    seconds = _seconds_of_run(run, cost)
    hours = seconds / 3600
    gpus = run.num_machines * NODE
    facts = [
        ("a step", show_seconds(cost.seconds.total)),
        ("tokens in a second", f"{run.tokens / seconds:,.0f}"),
        ("the run", f"{_days(seconds)}; {hours * gpus:,.0f} hours of a GPU"),
        how_exact(run.case, cost.layout),
    ]
    if run.price:
        money = f"{hours * run.num_machines * run.price:,.0f}"
        facts.insert(3, ("money, in the currency of the price", money))
    return facts


def _days(seconds: float) -> str:
    if seconds < 2 * DAY:
        return f"{seconds / 3600:.3g} hours"
    return f"{seconds / DAY:,.3g} days"


def words_of(layout: Layout) -> str:
    """Return a layout in words.

    Example:
        >>> words_of(Layout(4, 2, zero=3))  # doctest: +NORMALIZE_WHITESPACE
        '4 replicas, 2 GPUs share each layer; ZeRO-3, 1 example at a time,
        nothing is computed again'
    """
    ways = [f"{layout.data} replica{'s' if layout.data > 1 else ''}"]
    if layout.tensor > 1:
        ways.append(f"{layout.tensor} GPUs share each layer")
    if layout.context > 1:
        ways.append(f"{layout.context} GPUs share each sequence")
    if layout.pipeline > 1:
        ways.append(f"{layout.pipeline} stages in a row")
    rows = layout.micro_batch
    others = [
        f"ZeRO-{layout.zero}" if layout.zero else "no ZeRO",
        f"{rows} example{'s' if rows > 1 else ''} at a time",
        _WORDS_OF_RECOMPUTE[layout.recompute],
    ]
    return f"{', '.join(ways)}; {', '.join(others)}"


def _command(run: Run) -> str:
    nodes = network = ""
    if run.num_machines > 1:
        nodes = f"--nnodes {run.num_machines} "
        network = f"--network {run.machine.network} "
    return (
        f"python -m dpkit torchrun --meta --alike {nodes}--nproc-per-node "
        f"{NODE} {run.machine.options} {network}train.py"
    )


def _verdict(run: Run, cost: LayoutCost, fewest: int | None) -> str:
    held = show_memory(int(cost.memory.total))
    room = show_memory(int(run.case.room))
    if _does_fit(run, cost):
        step = show_seconds(cost.seconds.total)
        days = _days(_seconds_of_run(run, cost))
        return (
            f"It fits: the fullest GPU holds {held}, and {room} may be "
            f"filled. A step takes {step}, and the run {days}."
        )
    parts = cost.memory._asdict()
    most = max(parts, key=lambda part: parts[part])
    too_large = (
        "It does not fit: the layout that needs the least memory holds "
        f"{held} on its fullest GPU, mostly {MEMORY_WORDS[most]}, and {room} "
        "may be filled."
    )
    if fewest is None:
        return f"{too_large} It fits on no number of these machines."
    return f"{too_large} It fits on {fewest} of these machines."


TOKENS = (1, 10, 100, 300, 1000, 2000, 15_000)

CONTROLS: dict[str, Control] = {
    "model": Choice("network", "Llama 2, 7B", (*MODELS, OWN)),
    "layers": Number("layers", 24, (6, 12, 24, 48, 96), "", ("model", (OWN,))),
    "width": Number(
        "width: values of a token",
        2048,
        (512, 1024, 2048, 4096, 8192, 16_384),
        shown_for=("model", (OWN,)),
    ),
    "heads": Number(
        "heads of attention",
        16,
        (8, 16, 32, 64, 128),
        shown_for=("model", (OWN,)),
    ),
    "words": Number(
        "words of the vocabulary",
        32_000,
        (32_000, 50_257, 128_256),
        shown_for=("model", (OWN,)),
    ),
    "machine": Choice("machine", "p5.48xlarge", tuple(MACHINES)),
    "machines": Number("machines, of 8 GPUs each", 2, POWERS),
    "sequence": Number(
        "tokens of an example", 4096, (1024, 2048, 4096, 8192, 32_768)
    ),
    "examples": Number("examples of a step", 512, POWERS[3:]),
    "tokens": Number("tokens of the run, in billions", 100, TOKENS),
    "price": Number(
        "price of a machine for an hour", 0, (0, 1, 2, 5, 10, 20, 50, 100)
    ),
    "program": Choice("program", EAGER, tuple(PROGRAM_HOSTS)),
}


CALCULATOR = LiveFigure(
    "calculator",
    "A calculator for a run",
    show_run,
    CONTROLS,
    presets={
        "7 billion on one machine": preset(CONTROLS, machines=1),
        "70 billion on 64 machines": preset(
            CONTROLS, model="Llama 3, 70B", machines=64, sequence=8192
        ),
        "your own 1.3 billion on 40 GB": preset(
            CONTROLS, model=OWN, machine="p4d.24xlarge", machines=1
        ),
    },
)
