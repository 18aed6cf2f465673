"""The time that schedules take, in closed form, and what stays idle.

The formulas are for p equal stages, m micro-batches and no communication. F
and B are what a micro-batch takes on one device, forward and backward; v is
the number of stages (chunks) that a device has. GPipe with p = 3 and m = 4,
where F = B and a dot is an idle tick::

    device 0 | F F F F . . . . B B B B
    device 1 | . F F F F . . B B B B .     (m + p - 1)(F + B) in all
    device 2 | . . F F F F B B B B . .     (p - 1)(F + B) of it idle

Idle time is given as a share of the ideal time m(F + B), or of the total.

A schedule has one row of formulas, in ``FORMULAS``.
"""

from collections.abc import Callable
from typing import NamedTuple

from dpkit.units import check_known


class PipelineStep(NamedTuple):
    """A step of a pipeline, as far as the formulas look at it."""

    p: int  #: devices
    m: int  #: micro-batches
    v: int  #: stages on each device
    forward: float  #: seconds of a micro-batch on a device
    backward: float  #: the same, with both halves of backward
    weights: float  #: the part of it that makes the gradients of weights


class Formulas(NamedTuple):
    """What is known of a schedule in closed form."""

    #: The seconds of a step, or None where the formula does not hold.
    seconds: Callable[[PipelineStep], float | None]
    #: p, m, v, rank -> the most that a device keeps, as :func:`in_flight`.
    in_flight: Callable[[int, int, int, int], int]
    #: p, m -> how many hops a step waits; None where this is not known.
    hops: Callable[[int, int], float] | None = None


def _naive_seconds(step: PipelineStep) -> float:
    return step.m * step.p * (step.forward + step.backward)


def _one_stage_seconds(step: PipelineStep) -> float:
    """Return the seconds of GPipe, and of 1F1B."""
    return (step.m + step.p - 1) * (step.forward + step.backward)


def _interleaved_seconds(step: PipelineStep) -> float | None:
    if step.m % step.p:
        return None
    both = step.forward + step.backward
    return step.m * both + (step.p - 1) * both / step.v


def _zero_bubble_seconds(step: PipelineStep) -> float | None:
    inputs = step.backward - step.weights
    if step.m < step.p or step.weights > min(step.forward, inputs):
        return None
    ideal = step.m * (step.forward + step.backward)
    return ideal + (step.p - 1) * (step.forward + inputs - step.weights)


# Hops of 1 in 1F1B with p = 2, F = 1, B = 2. Stage 0 has two micro-batches on
# their way, and waits for one to come back before it starts another:
#
#     second    0   1   2   3   4   5   6   7   8   9  10  11  12  13  14
#     stage 0   F0  F1                  B0  B0  F2  B1  B1  F3          B2
#     stage 1           F0  B0  B0  F1  B1  B1          F2  B2  B2  F3  B3
#
# From B0 to B2, two micro-batches take 2(F + B) = 6 seconds and the 2 hops
# there and back. On p devices, p micro-batches share 2(p - 1) hops.


def _one_f_one_b_hops(p: int, m: int) -> float:
    # m = 16 micro-batches on p = 4: 16 · 6/4 = 24, and 4 at the ends.
    return 2 * (p - 1) / p * m + 2 * max(p - 2, 0)


FORMULAS = {
    "naive": Formulas(
        seconds=_naive_seconds,
        in_flight=lambda p, m, v, rank: 1,
        hops=lambda p, m: 2.0 * (p - 1) * m,  # each, there and back
    ),
    "gpipe": Formulas(
        seconds=_one_stage_seconds,
        in_flight=lambda p, m, v, rank: m,
        hops=lambda p, m: 2.0 * (p - 1),  # to fill the pipeline, to empty it
    ),
    "1f1b": Formulas(
        seconds=_one_stage_seconds,
        in_flight=lambda p, m, v, rank: min(m, p - rank),
        hops=_one_f_one_b_hops,
    ),
    "interleaved": Formulas(
        seconds=_interleaved_seconds,
        in_flight=lambda p, m, v, rank: min(
            m * v, 2 * (p - rank - 1) + (v - 1) * p + 1
        ),
    ),
    "zb-h1": Formulas(
        seconds=_zero_bubble_seconds,
        # As 1F1B, and as many as wait for W: the rank.
        in_flight=lambda p, m, v, rank: min(m, p),
    ),
}


def makespan(
    name: str,
    num_devices: int,
    num_micro_batches: int,
    *,
    forward: float,
    backward: float,
    chunks: int = 1,
    weights: float = 0.0,
) -> float:
    """Return the seconds that a step takes with a schedule.

    Args:
        name: "naive", "gpipe", "1f1b", "interleaved" or "zb-h1".
        num_devices: How many devices share the network.
        num_micro_batches: How many parts the batch is cut into.
        forward: The seconds of a micro-batch on a device, through all of its
            stages.
        backward: The same of backward, with both halves.
        chunks: For "interleaved": how many stages a device has.
        weights: For "zb-h1": the part of ``backward`` that makes the
            gradients of the weights.

    Raises:
        ValueError: there is no formula for this name and these numbers.

    Example:
        >>> makespan("gpipe", 3, 4, forward=1.0, backward=1.0)
        12.0
        >>> makespan("zb-h1", 3, 4, forward=1.0, backward=2.0, weights=1.0)
        14.0
    """
    step = PipelineStep(
        p=num_devices,
        m=num_micro_batches,
        v=chunks,
        forward=forward,
        backward=backward,
        weights=weights,
    )
    seconds = FORMULAS[name].seconds(step) if name in FORMULAS else None
    if seconds is None:
        raise ValueError(
            f"no formula for this schedule (schedule: {name!r}, devices: "
            f"{num_devices}, micro-batches: {num_micro_batches}, forward: "
            f"{forward}, backward: {backward}, weights: {weights}); replay() "
            "gives the time of any schedule"
        )
    return seconds


def hops_waited(name: str, num_devices: int, num_micro_batches: int) -> float:
    """Return how many hops a step of a pipeline waits for its messages.

    A hop is the time of a message from a stage to the next. The naive
    schedule waits for each of them. GPipe waits while the pipeline fills and
    empties. 1F1B waits for each micro-batch to go through all stages and to
    come back. As many micro-batches are on this way at once as there are
    devices, so that they share the wait.

    ``replay`` gives the same counts for equal stages, where the number of
    micro-batches is a multiple of that of devices. Over links that send one
    message at a time, the counts hold while a hop takes no longer than a
    forward pass. Longer hops also wait for each other. GPipe then waits much
    longer, and 1F1B up to a tenth longer while a hop takes no longer than
    three forward passes.

    Raises:
        ValueError: the schedule is unknown, or no formula counts its hops.

    Example:
        >>> hops_waited("gpipe", 4, 16), hops_waited("1f1b", 4, 16)
        (6.0, 28.0)
    """
    check_known("schedule", name, FORMULAS)
    hops = FORMULAS[name].hops
    if hops is None:
        known = ", ".join(n for n, of in FORMULAS.items() if of.hops)
        raise ValueError(
            "no formula counts the hops of this schedule (schedule: "
            f"{name!r}, known: {known}); replay() gives its time with hops"
        )
    return hops(num_devices, num_micro_batches)


def idle_of_ideal(
    num_devices: int, num_micro_batches: int, *, chunks: int = 1
) -> float:
    """Return the bubble of GPipe, 1F1B or interleaving, by the ideal time.

    Args:
        num_devices: How many devices share the network.
        num_micro_batches: How many parts the batch is cut into.
        chunks: How many stages a device has, more than 1 if interleaved.

    Returns:
        Idle seconds of a device, over the seconds in which it works.

    Example:
        >>> idle_of_ideal(3, 4), idle_of_ideal(3, 4, chunks=2)
        (0.5, 0.25)
    """
    return (num_devices - 1) / (chunks * num_micro_batches)


def idle_of_total(
    num_devices: int, num_micro_batches: int, *, chunks: int = 1
) -> float:
    """Return the bubble of GPipe, 1F1B or interleaving, by the whole step.

    Arguments are those of :func:`idle_of_ideal`. A step of 6 ticks with 2
    idle ones has a third here, and a half there.

    Example:
        >>> round(idle_of_total(3, 4), 3)
        0.333
    """
    idle = idle_of_ideal(num_devices, num_micro_batches, chunks=chunks)
    return idle / (1 + idle)


def in_flight(
    name: str,
    num_devices: int,
    num_micro_batches: int,
    *,
    rank: int,
    chunks: int = 1,
) -> int:
    """Return the most micro-batches that a device keeps at once.

    Each of its stages counts: with several, this is a number of chunks.

    Args:
        name: "naive", "gpipe", "1f1b", "interleaved" or "zb-h1".
        num_devices: How many devices share the network.
        num_micro_batches: How many parts the batch is cut into.
        rank: The device, 0 for the one with the first stage.
        chunks: For "interleaved": how many stages a device has.

    Raises:
        ValueError: the schedule is unknown.

    Example:
        >>> [in_flight("1f1b", 3, 5, rank=rank) for rank in range(3)]
        [3, 2, 1]
    """
    check_known("schedule", name, FORMULAS)
    most = FORMULAS[name].in_flight
    return most(num_devices, num_micro_batches, chunks, rank)
