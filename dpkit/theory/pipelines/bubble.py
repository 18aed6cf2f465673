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

    ``name`` is "naive", "gpipe", "1f1b", "interleaved" or "zb-h1".
    ``forward`` and ``backward`` are the seconds of a micro-batch on a device,
    with all its stages and both halves of backward. "interleaved" takes the
    ``chunks`` v. "zb-h1" takes ``weights``, the part of ``backward`` that
    makes the gradients of the weights.

    Raises:
        ValueError: there is no formula for this name and these numbers.

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


# Hops of 1 in 1F1B with p = 2, F = 1, B = 2. Stage 0 has two micro-batches on
# their way, and waits for one to come back before it starts another:
#
#     second    0   1   2   3   4   5   6   7   8   9  10  11  12  13  14
#     stage 0   F0  F1                  B0  B0  F2  B1  B1  F3          B2
#     stage 1           F0  B0  B0  F1  B1  B1          F2  B2  B2  F3  B3
#
# From B0 to B2, two micro-batches take 2(F + B) = 6 seconds and the 2 hops
# there and back. On p devices, p micro-batches share 2(p - 1) hops.


def hops_waited(name: str, num_devices: int, num_micro_batches: int) -> float:
    """Return how many hops a step of a pipeline waits for its messages.

    A hop is the time of a message from a stage to the next. GPipe waits while
    the pipeline fills and empties. 1F1B waits for each micro-batch to go
    through all stages and to come back. As many micro-batches are on this way
    at once as there are devices, so that they share the wait.

    ``replay`` gives the same counts for equal stages, where the number of
    micro-batches is a multiple of that of devices. Over links that send one
    message at a time, the counts hold while a hop is shorter than a forward
    pass. Longer hops also wait for each other.

    Raises:
        ValueError: there is no formula for this name.

    Example:
        >>> hops_waited("gpipe", 4, 16), hops_waited("1f1b", 4, 16)
        (6.0, 28.0)
    """
    p, m = num_devices, num_micro_batches
    if name == "gpipe":
        return 2.0 * (p - 1)
    if name == "1f1b":
        # m = 16 micro-batches on p = 4: 16 · 6/4 = 24, and 4 at the ends.
        return 2 * (p - 1) / p * m + 2 * max(p - 2, 0)
    raise ValueError(f"no formula for this schedule (schedule: {name!r})")


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
    """Return the same bubble, by the whole time of the step: here 2 of 6.

    Example:
        >>> round(idle_of_total(3, 4), 3)
        0.333
    """
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
