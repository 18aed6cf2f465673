"""Checks of the exercises on sharding."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from dpbook.exercises.verdict import Answer, require
from dpbook.formulas.sharding import kept_bytes, sent_bytes

Order = list[tuple[str, int]]


class Memory(NamedTuple):
    """A network, and the GB that a device may keep and send in a step."""

    num_parameters: int = 10**9
    most_kept: float = 6
    most_sent: float = 7


MEMORY = Memory()


def kept_and_sent(
    stage: int, num_devices: int, memory: Memory
) -> tuple[float, float]:
    """Return the GB that a device keeps, and those that it sends in a step.

    Example:
        >>> kept_and_sent(2, 6, Memory())
        (6.0, 6.666666666666667)
    """
    num_parameters = memory.num_parameters
    kept = kept_bytes(stage, num_parameters, num_devices)
    sent = sent_bytes(stage, 4 * num_parameters, num_devices)
    return sum(kept.values()) / 1e9, sent / 1e9


def check_form_and_devices(answer: Answer, memory: Memory = MEMORY) -> None:
    """Little enough kept and little enough sent, on at most 16 devices."""
    found = answer()
    why = f"it returned {found!r}, not a stage and a number of devices"
    require(isinstance(found, tuple) and len(found) == 2, why)
    stage, k = found
    case = f"ZeRO-{stage} on {k} devices"
    require(stage in (0, 1, 2, 3), f"{case}: the stages are 0 to 3")
    require(k in range(1, 17), f"{case}: there are 1 to 16 devices")
    kept, sent = kept_and_sent(stage, k, memory)
    why = f"a device keeps {kept:.2f} GB, where {memory.most_kept:g} are"
    require(kept <= memory.most_kept, f"{case}: {why} allowed")
    why = f"a device sends {sent:.2f} GB, where {memory.most_sent:g} are"
    require(sent <= memory.most_sent, f"{case}: {why} allowed")


class Read(NamedTuple):
    """What the timeline of a backward pass shows."""

    late: int = 1  #: the block that is gathered too late
    whole: int = 5  #: the most that are whole in one tick; in the book, tick 5
    sooner: int = 0  #: the ticks that the late gather costs


READ = Read()


def check_read_backward(answer: Answer, right: Read = READ) -> None:
    """The late gather, the most that is whole, and what the end gains."""
    found = answer()
    why = f"it returned {found!r}, not a block and two numbers"
    require(isinstance(found, tuple) and len(found) == 3, why)
    late, whole, sooner = found
    why = f"nothing waits for the gather of block {late!r}"
    require(late == right.late, why)
    why = f"the most that are whole in one tick are not {whole!r}"
    require(whole == right.whole, why)
    why = f"the end does not come {sooner!r} sooner"
    require(sooner == right.sooner, f"{why}: what does the last row show?")


class Blocks(NamedTuple):
    """Blocks to be gathered: for 20 MB in 1 ms, forward in 2 ms.

    Forward may take ``most_ms``, and ``most_megabytes`` may be whole.
    """

    megabytes: tuple[int, ...] = (20, 20, 20, 80, 40, 20)
    most_ms: float = 21
    most_megabytes: int = 120


BLOCKS = Blocks()


def check_gathering_order(answer: Answer, blocks: Blocks = BLOCKS) -> None:
    """Forward in time, with no more whole than may be."""
    order = answer()
    require(isinstance(order, list), f"it returned {order!r}")
    computed = [b for what, b in order if what == "compute"]
    require(computed == [*range(6)], f"it computes {computed}")
    whole: set[int] = set()
    for number, (what, b) in enumerate(order):
        when = f"at {what} {b}"
        if what == "gather":
            whole.add(b)
        require(b in whole, f"{when}, block {b} is not whole")
        size = sum(blocks.megabytes[i] for i in whole)
        most = blocks.most_megabytes
        when = f"{when}, {size} MB are whole"
        require(size <= most, f"{when}, where {most} are allowed")
        if what == "free":
            later = ("compute", b) in order[number:]
            require(not later, f"{when}, the block is not computed yet")
            whole.remove(b)
    require(not whole, f"in the end block {min(whole, default=0)} is whole")
    end = forward_ms(order, blocks.megabytes)
    when = f"it ends at {end:g} ms, where {blocks.most_ms:g} are allowed"
    require(end <= blocks.most_ms, when)


def forward_ms(order: Order, megabytes: Sequence[int]) -> float:
    """Return when forward ends, in ms.

    A gather begins when the gathers and the work issued before it are done.

    Args:
        order: What forward issues: ``("gather", block)``, "compute" or "free".
        megabytes: The size of each block.

    Example:
        >>> forward_ms([("gather", 0), ("compute", 0)], [20])
        3.0
    """
    arrived: dict[int, float] = {}
    work = sent = 0.0
    for what, b in order:
        ms = megabytes[b] / 20
        if what == "gather":
            sent = max(work, sent) + ms
            arrived[b] = sent
        if what == "compute":
            work = max(work, arrived[b]) + 2 * ms
    return work


def check_pieces_to_load(
    answer: Answer, more: Sequence[tuple[int, int, int]] = ()
) -> None:
    """Each value once, from the file of the rank that had it."""
    cases = (12, 4, 3), (10, 4, 3), (7, 3, 5), (2, 3, 2)
    for size, before, after in (*cases, *more):
        case = f"{size} values, {before} ranks, then {after}"
        found = answer(size, before, after)
        right = isinstance(found, list) and len(found) == after
        require(right, f"{case}: it returned {found!r}")
        for rank, (pieces, part) in enumerate(
            zip(found, _parts(size, after), strict=True)
        ):
            got = [i for _, a, b in pieces for i in range(a, b)]
            why = f"rank {rank} loads {got}, its shard is {list(part)}"
            require(sorted(got) == list(part), f"{case}: {why}")
            for file, a, b in pieces:
                has = _parts(size, before)[file]
                why = f"file {file} has {list(has)}, not {a} to {b - 1}"
                require(a in has and b - 1 in has, f"{case}: {why}")


def _parts(size: int, k: int) -> list[range]:
    """Return which places of a whole each of k ranks has."""
    borders = [r * (size // k) + min(r, size % k) for r in range(k + 1)]
    return [range(a, b) for a, b in pairwise(borders)]
