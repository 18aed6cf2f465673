"""The rates α, β and γ, of a preset or fitted to measurements."""

from collections.abc import Callable, Mapping

from dpkit.least_squares import fit_two
from dpkit.plans.costs import Chain, Rates
from dpkit.sim.hardware import Accelerator, Cluster, Host, Link

INFINITE = float("inf")
# A host that issues for nothing. A library that runs a whole collective as
# one kernel is nearer to it than a Python that launches each message.
FREE_HOST = Host(
    name="free",
    launch_seconds=0.0,
    backward_launch_seconds=0.0,
    view_seconds=0.0,
    wait_seconds=0.0,
    to_device_bytes_per_second=INFINITE,
    from_device_bytes_per_second=INFINITE,
    new_memory_bytes_per_second=INFINITE,
)


def rates_of(accelerator: Accelerator, link: Link) -> Rates:
    """Return the rates of large messages and additions on known hardware.

    Adding reads both terms and writes one. What a small operation costs a
    device besides, and what launching costs a host, is left out.

    Example:
        >>> from dpkit.sim.hardware import ACCELERATORS, LINKS
        >>> rates = rates_of(ACCELERATORS["v100"], LINKS["nvlink2"])
        >>> f"{1e6 * rates.alpha:.1f} µs, {1e-9 / rates.beta:.1f} GB/s"
        '2.3 µs, 145.5 GB/s'
    """
    memory = accelerator.bytes_per_second * accelerator.achieved_bytes
    bandwidth = link.bytes_per_second * link.achieved
    return Rates(link.latency_seconds, 1 / bandwidth, 3 / memory)


def ideal_cluster(num_devices: int, rates: Rates) -> Cluster:
    """Return devices that take α + nβ for a message, nγ for adding it.

    Nothing else takes time: their host launches for nothing. Without
    contention the closed forms are exact for them.
    """
    accelerator = Accelerator(
        "ideal",
        flops_per_second={"float32": INFINITE},
        bytes_per_second=3 / float(rates.gamma) if rates.gamma else INFINITE,
        memory_bytes=2**50,
        achieved_flops={"float32": 1.0},
        achieved_bytes=1.0,
        half_flops=0.0,
        half_bytes=0.0,
        kernel_seconds=0.0,
        host_link=_ideal_link("to the host ", rates),
    )
    link = _ideal_link("", rates)
    return Cluster(num_devices, accelerator, link, FREE_HOST)


def _ideal_link(prefix: str, rates: Rates) -> Link:
    bandwidth = 1 / float(rates.beta) if rates.beta else INFINITE
    return Link(
        name=f"{prefix}{1e-9 * bandwidth:.4g} GB/s",
        bytes_per_second=bandwidth,
        achieved=1.0,
        latency_seconds=float(rates.alpha),
        peer_to_peer=True,
    )


def fit(
    measured: Mapping[float, float], chain: Callable[[float], Chain]
) -> Rates:
    """Return the α and β that measured times fit best.

    The sum of the squared relative errors is as small as it can be. What adds
    is taken as a part of β.

    ``measured`` has bytes on each rank -> seconds, of two sizes at least;
    ``chain`` gives the longest chain of messages, from bytes on each rank.

    Example:
        >>> from dpkit.plans.costs import ring_chain
        >>> ring = lambda n: ring_chain(4, n)
        >>> times = {n: ring(n).seconds(Rates(2, 3)) for n in (10, 30, 70)}
        >>> [round(rate, 6) for rate in fit(times, ring)]
        [2.0, 3.0, 0]
    """
    if len(measured) < 2:
        raise ValueError(
            f"two rates need times of two sizes (times: {len(measured)})"
        )
    # Each time, divided by itself, should be 1 = α · messages + β · bytes.
    messages = [chain(n).messages / time for n, time in measured.items()]
    moved = [chain(n).num_bytes / time for n, time in measured.items()]
    return Rates(*fit_two(messages, moved, totals=[1.0] * len(measured)))


def errors(
    measured: Mapping[float, float],
    chain: Callable[[float], Chain],
    rates: Rates,
) -> dict[float, float]:
    """Return the relative error of each predicted time, by bytes.

    Args:
        measured: Bytes on each rank -> measured seconds.
        chain: Gives the longest chain of messages, from bytes on each rank.
        rates: What messages and additions take.

    Returns:
        Bytes on each rank -> predicted over measured time, less 1: 0.1 where
        the prediction is 10 % too long.
    """
    return {
        num_bytes: chain(num_bytes).seconds(rates) / seconds - 1
        for num_bytes, seconds in measured.items()
    }
