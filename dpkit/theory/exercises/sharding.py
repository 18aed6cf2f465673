"""Checks of the exercises on sharding."""

from dpkit.theory.exercises.verdict import Answer, require, require_reference

Order = list[tuple[str, int]]


def check_kept_numbers(answer: Answer) -> None:
    """Each stage and rank, with sizes that k does not divide."""

    def reference(sizes: list[int], k: int, rank: int, stage: int) -> int:
        part = sum(len(range(rank, n, k)) for n in sizes)
        cut = [stage >= 3, stage >= 2, stage >= 1, stage >= 1]
        return sum(part if shard else sum(sizes) for shard in cut)

    cases = [
        (sizes, k, rank, stage)
        for sizes, k in (([5, 4], 3), ([12], 4), ([2, 7, 1], 5))
        for rank in (0, k - 1)
        for stage in range(4)
    ]
    words = "blocks of {0}, {1} devices, rank {2}, stage {3}"
    require_reference(answer, reference, cases, words)


def check_prefetch_order(answer: Answer) -> None:
    """What is computed is whole, and what is gathered is beside work."""
    for count in (1, 2, 5):
        order = answer(count)
        require(isinstance(order, list), f"it returned {order!r}")
        computed = [b for what, b in order if what == "compute"]
        words = f"{count} blocks: it computes {computed}"
        require(computed == list(range(count)), words)
        _require_order(order, f"{count} blocks")


def _require_order(order: Order, case: str) -> None:
    """Go through an order, and keep in mind which blocks are whole."""
    whole: set[int] = set()
    for place, (what, b) in enumerate(order):
        words = f"{case}: at {what} {b}"
        if what == "gather":
            beside = place == 0 or ("compute", b - 1) in order[place:]
            require(beside, f"{words}, block {b - 1} has been issued already")
            whole.add(b)
            require(len(whole) <= 2, f"{words}, {len(whole)} blocks are whole")
        else:
            require(b in whole, f"{words}, block {b} is not whole")
        if what == "free":
            later = ("compute", b) in order[place:]
            require(not later, f"{words}, the block is not computed yet")
            whole.remove(b)
    require(
        not whole, f"{case}: in the end block {min(whole, default=0)} is whole"
    )
