"""Checks of the exercises on sharding."""

from itertools import pairwise

from dpbook.exercises.verdict import Answer, require
from dpbook.formulas.sharding import kept_bytes, sent_bytes

Order = list[tuple[str, int]]


def check_form_and_devices(answer: Answer) -> None:
    """A billion parameters: 6 GB kept, 7 GB sent, on at most 16 devices."""
    found = answer()
    num_parameters = 10**9
    words = f"it returned {found!r}, not a stage and a number of devices"
    require(isinstance(found, tuple) and len(found) == 2, words)
    stage, k = found
    case = f"ZeRO-{stage} on {k} devices"
    require(stage in (0, 1, 2, 3), f"{case}: the stages are 0 to 3")
    require(k in range(1, 17), f"{case}: there are 1 to 16 devices")
    kept = sum(kept_bytes(stage, num_parameters, k).values()) / 1e9
    words = f"a device keeps {kept:.2f} GB, where 6 are allowed"
    require(kept <= 6, f"{case}: {words}")
    sent = sent_bytes(stage, 4 * num_parameters, k) / 1e9
    words = f"a device sends {sent:.2f} GB, where 7 are allowed"
    require(sent <= 7, f"{case}: {words}")


def check_read_backward(answer: Answer) -> None:
    """The late gather, the most that is whole, and what the end gains."""
    found = answer()
    words = f"it returned {found!r}, not a block and two numbers"
    require(isinstance(found, tuple) and len(found) == 3, words)
    late, whole, sooner = found
    require(late == 1, f"nothing waits for the gather of block {late!r}")
    words = f"the most that are whole in one tick are not {whole!r}"
    require(whole == 5, words)  # in tick 5; a test counts them
    words = "the scatters follow one another from tick 2 on"
    require(sooner == 0, f"the end does not come {sooner!r} sooner: {words}")


BLOCK_MEGABYTES = (20, 20, 20, 80, 40, 20)  # for 20: 1 ms, forward 2 ms


def check_gathering_order(answer: Answer) -> None:
    """Forward in 21 ms, with 120 MB whole at the most."""
    order = answer()
    require(isinstance(order, list), f"it returned {order!r}")
    computed = [b for what, b in order if what == "compute"]
    require(computed == [*range(6)], f"it computes {computed}")
    whole: set[int] = set()
    for place, (what, b) in enumerate(order):
        words = f"at {what} {b}"
        if what == "gather":
            whole.add(b)
        require(b in whole, f"{words}, block {b} is not whole")
        size = sum(BLOCK_MEGABYTES[i] for i in whole)
        words = f"{words}, {size} MB are whole"
        require(size <= 120, f"{words}, where 120 are allowed")
        if what == "free":
            later = ("compute", b) in order[place:]
            require(not later, f"{words}, the block is not computed yet")
            whole.remove(b)
    require(not whole, f"in the end block {min(whole, default=0)} is whole")
    end = _forward_ms(order)
    require(end <= 21, f"it ends at {end:g} ms, where 21 are allowed")


def _forward_ms(order: Order) -> float:
    """Return when forward ends.

    A gather begins when the gathers and the work issued before it are done.
    """
    arrived: dict[int, float] = {}
    work = sent = 0.0
    for what, b in order:
        ms = BLOCK_MEGABYTES[b] / 20
        if what == "gather":
            sent = max(work, sent) + ms
            arrived[b] = sent
        if what == "compute":
            work = max(work, arrived[b]) + 2 * ms
    return work


def check_pieces_to_load(answer: Answer) -> None:
    """Each value once, from the file of the rank that had it."""
    for size, before, after in ((12, 4, 3), (10, 4, 3), (7, 3, 5), (2, 3, 2)):
        case = f"{size} values, {before} ranks, then {after}"
        found = answer(size, before, after)
        right = isinstance(found, list) and len(found) == after
        require(right, f"{case}: it returned {found!r}")
        for rank, (pieces, part) in enumerate(
            zip(found, _parts(size, after), strict=True)
        ):
            got = [i for _, a, b in pieces for i in range(a, b)]
            words = f"rank {rank} loads {got}, its shard is {list(part)}"
            require(sorted(got) == list(part), f"{case}: {words}")
            for file, a, b in pieces:
                has = _parts(size, before)[file]
                words = f"file {file} has {list(has)}, not {a} to {b - 1}"
                require(a in has and b - 1 in has, f"{case}: {words}")


def _parts(size: int, k: int) -> list[range]:
    """Return which places of a whole each of k ranks has."""
    borders = [r * (size // k) + min(r, size % k) for r in range(k + 1)]
    return [range(a, b) for a, b in pairwise(borders)]
