"""Checks of the exercises on sharding."""

from dpkit.theory.exercises.verdict import Answer, require
from dpkit.theory.sharding import kept_bytes, sent_bytes

Order = list[tuple[str, int]]


def check_form_and_devices(answer: Answer) -> None:
    """A billion parameters: 6 GB kept, 7 GB sent, on at most 16 devices."""
    found, num_parameters = answer(), 10**9
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
