"""Networks in shards, as a sheet asks for them."""

from collections.abc import Iterator
from functools import partial
from itertools import combinations_with_replacement, product
from random import Random

from dpbook.assignment.asked import Asked, listed, passes
from dpbook.exercises.sharding import (
    Blocks,
    Memory,
    Order,
    check_form_and_devices,
    check_gathering_order,
    forward_ms,
    kept_and_sent,
)

NUM_DEVICES = range(1, 17)


def draw_form_and_devices(random: Random) -> Asked:
    """Draw a network and limits that one form of ZeRO keeps."""
    while True:
        billions = random.choice((1, 2, 3, 4, 6, 8))
        stage, k = random.choice((1, 2, 3)), random.randint(2, 12)
        kept, sent = kept_and_sent(stage, k, Memory(billions * 10**9))
        memory = Memory(billions * 10**9, int(kept) + 1, int(sent) + 1)
        check = partial(check_form_and_devices, memory=memory)
        choices = product(range(4), NUM_DEVICES)
        keys = [choice for choice in choices if passes(check, choice)]
        if len({form for form, _ in keys}) == 1 and len(keys) <= 3:
            break
    billion = "$10^9$" if billions == 1 else rf"${billions} \cdot 10^9$"
    return Asked(
        phrases={
            "$10^9$ parameters": f"{billion} parameters",
            "keep 6 GB": f"keep {memory.most_kept} GB",
            "send 7 GB": f"send {memory.most_sent} GB",
        },
        check=check,
        keys=[*keys],
    )


def orders(n: int) -> Iterator[Order]:
    """Yield each order of gathers that frees a block after its work.

    The gathers are issued in the order of the blocks, each before some work.

    Example:
        >>> len(list(orders(3)))
        5
    """
    for before in combinations_with_replacement(range(n), n):
        if any(work > block for block, work in enumerate(before)):
            continue
        order: Order = []
        for work in range(n):
            order += [("gather", b) for b in range(n) if before[b] == work]
            order += [("compute", work), ("free", work)]
        yield order


def one_ahead(n: int) -> Order:
    """Return the order that gathers one block ahead, as the stub does.

    Example:
        >>> one_ahead(1)
        [('gather', 0), ('compute', 0), ('free', 0)]
    """
    order: Order = [("gather", 0)]
    for b in range(n):
        if b + 1 < n:
            order.append(("gather", b + 1))
        order += [("compute", b), ("free", b)]
    return order


def most_whole(order: Order, megabytes: tuple[int, ...]) -> int:
    """Return the most megabytes that are whole at once.

    Example:
        >>> most_whole(one_ahead(3), (20, 40, 80))
        120
    """
    most = whole = 0
    for what, b in order:
        if what == "gather":
            whole += megabytes[b]
        if what == "free":
            whole -= megabytes[b]
        most = max(most, whole)
    return most


def draw_gathering_order(random: Random) -> Asked:
    """Draw six sizes for which a gather has to be moved, but not all."""
    while True:
        sizes = tuple(random.choices((20, 40, 60, 80), k=6))
        most = most_whole(one_ahead(6), sizes)
        now = forward_ms(one_ahead(6), sizes)
        fit = [o for o in orders(6) if most_whole(o, sizes) <= most]
        least = min(forward_ms(order, sizes) for order in fit)
        blocks = Blocks(sizes, most_ms=least, most_megabytes=most)
        check = partial(check_gathering_order, blocks=blocks)
        keys: list[object] = [o for o in orders(6) if passes(check, o)]
        if least < now and len(keys) <= 4:
            break
    listed_sizes = listed([str(size) for size in sizes])
    return Asked(
        phrases={
            "20, 20, 20, 80, 40 and 20 MB": f"{listed_sizes} MB",
            "takes 23 ms, and at most 120 MB": (
                f"takes {now:g} ms, and at most {most} MB"
            ),
            "takes 21 ms, and at most 120 MB": (
                f"takes {least:g} ms, and at most {most} MB"
            ),
        },
        check=check,
        keys=keys,
    )
