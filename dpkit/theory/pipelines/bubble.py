"""The time that schedules take, in closed form, and what stays idle.

The formulas are for p equal stages, m micro-batches and no communication. F
and B are what a micro-batch takes on one device, forward and backward; v is
the number of stages (chunks) that a device has. GPipe with p = 3 and m = 4,
where F = B and a dot is an idle tick::

    device 0 | F F F F . . . . B B B B
    device 1 | . F F F F . . B B B B .     (m + p - 1)(F + B) in all
    device 2 | . . F F F F B B B B . .     (p - 1)(F + B) of it idle

Idle time is given as a share of the ideal time m(F + B), or of the total.
"""

from collections.abc import Callable

from dpkit.theory.pipelines.actions import Action, Schedule, owners


def makespan(
    name: str,
    num_devices: int,
    num_micro_batches: int,
    forward: float,
    backward: float,
    chunks: int = 1,
    weights: float = 0.0,
) -> float:
    """Return the seconds that a step takes with a schedule.

    Args:
        name: "naive", "gpipe", "1f1b", "interleaved" or "zb-h1".
        num_devices: p.
        num_micro_batches: m.
        forward: Seconds of one micro-batch on one device, all its stages.
        backward: The same of its backward, both halves.
        chunks: v, for "interleaved" alone.
        weights: The part of ``backward`` that makes the gradients of the
            weights; for "zb-h1" alone.

    Example:
        >>> makespan("gpipe", 3, 4, forward=1.0, backward=1.0)
        12.0
        >>> makespan("zb-h1", 3, 4, 1.0, 2.0, weights=1.0)
        14.0
    """
    p, m, both = num_devices, num_micro_batches, forward + backward
    if name == "naive":
        return m * p * both
    if name in ("gpipe", "1f1b"):
        return (m + p - 1) * both
    if name == "interleaved" and m % p == 0:
        return m * both + (p - 1) * both / chunks
    if name == "zb-h1" and m >= p:
        inputs = backward - weights
        if weights <= min(forward, inputs):
            return m * both + (p - 1) * (forward + inputs - weights)
    raise ValueError(
        f"no formula for this schedule (schedule: {name!r}, devices: {p}, "
        f"micro-batches: {m}, forward: {forward}, backward: {backward}, "
        f"weights: {weights})"
    )


def idle_of_ideal(
    num_devices: int, num_micro_batches: int, chunks: int = 1
) -> float:
    """Return the bubble of GPipe, 1F1B or interleaving, by the ideal time.

    Example:
        >>> idle_of_ideal(3, 4), idle_of_ideal(3, 4, chunks=2)
        (0.5, 0.25)
    """
    return (num_devices - 1) / (chunks * num_micro_batches)


def idle_of_total(
    num_devices: int, num_micro_batches: int, chunks: int = 1
) -> float:
    """Return the same bubble, by the whole time of the step."""
    idle = idle_of_ideal(num_devices, num_micro_batches, chunks)
    return idle / (1 + idle)


def in_flight(
    name: str,
    num_devices: int,
    num_micro_batches: int,
    rank: int,
    chunks: int = 1,
) -> int:
    """Return the most micro-batches that a device keeps; chunks, with many.

    Example:
        >>> [in_flight("1f1b", 3, 5, rank) for rank in range(3)]
        [3, 2, 1]
    """
    p, m, v = num_devices, num_micro_batches, chunks
    if name == "naive":
        return 1
    if name == "gpipe":
        return m
    if name == "1f1b":
        return min(m, p - rank)
    if name == "zb-h1":  # as 1F1B, and as many as wait for W: the rank
        return min(m, p)
    if name == "interleaved":
        return min(m * v, 2 * (p - rank - 1) + (v - 1) * p + 1)
    raise ValueError(f"unknown schedule (schedule: {name!r})")


def lower_bound(
    schedule: Schedule,
    seconds: Callable[[Action], float],
    hop_seconds: float = 0.0,
) -> float:
    """Return a time that no order of these actions can beat.

    A device cannot begin before a micro-batch has come through all stages
    before its first. Then it has all its work to do. Then the last gradient
    has to go back through those stages, unless the last work was a weight's.

    Example:
        >>> from dpkit.theory.pipelines.schedules import one_f_one_b
        >>> lower_bound(one_f_one_b(3, 4), lambda action: 1.0)
        12.0
    """
    # 1F1B of 3 stages and 4 micro-batches, 1 s each: device 2 waits 2 for its
    # first, works 8, and its last gradient goes back through 2 stages: 12.
    least: dict[tuple[int, str], float] = {}  # of any micro-batch
    for action in (action for actions in schedule for action in actions):
        key = action[:2]
        least[key] = min(least.get(key, float("inf")), seconds(action))
    owner = owners(schedule)
    split = any(kind == "W" for _, kind in least)
    bound = 0.0
    for actions in filter(None, schedule):
        first = min(action.stage for action in actions)
        before = range(first)
        hops = sum(owner[s] != owner[s + 1] for s in before) * hop_seconds
        head = sum(least[s, "F"] for s in before) + hops
        tail = 0.0 if split else sum(least[s, "B"] for s in before) + hops
        bound = max(bound, head + sum(map(seconds, actions)) + tail)
    return bound
