"""Bugs of timers, and of what a time is taken to show."""

from collections.abc import Callable

import torch
from torch import Tensor

from dpbook.museum.exhibit import Devices, Exhibit, Version, claim
from dpkit import Timer, devices, sim, synchronize
from dpkit.sim.clock import Race, Span
from dpkit.sim.hardware import ACCELERATORS

SIZE = 600
COUNT = 4  # products, and copies
NAME = "v100-pcie"
Work = Callable[[], object]


def time_all(work: Work, devices: Devices) -> float:
    """Time some work on several devices."""
    module = torch.get_device_module(devices[0])
    start = sim.now()
    work()
    for _ in devices:
        module.synchronize()
    return sim.now() - start


def wait_for_each(work: Work, devices: Devices) -> float:
    """Time some work, and wait for every device."""
    with Timer(devices) as timer:
        work()
    return timer.seconds


def work_on_the_last(version: Version) -> None:
    """Time work on the last device: no sooner than its peak permits."""
    check_peak(version, busy=slice(-1, None))


def same_work_on_all(version: Version) -> None:
    """Time the same work on all devices: no sooner than the peak permits."""
    check_peak(version, busy=slice(None))


def check_peak(version: Version, busy: slice) -> None:
    """Multiply on some of four devices; compare the rate with the peak."""
    ranks = devices(4, "sim")
    inputs = [torch.ones(SIZE, SIZE, device=d) for d in ranks[busy]]
    synchronize(ranks)
    with sim.machine(accelerator=NAME):
        seconds = version(
            lambda: [x @ x for x in inputs for _ in range(COUNT)], ranks
        )
    flops = COUNT * 2 * SIZE**3
    least = flops / ACCELERATORS[NAME].flops_per_second["float32"]
    found = f"milliseconds: {1e3 * seconds:.3f}, at least: {1e3 * least:.3f}"
    claim(seconds >= least, f"sooner than the device can be ({found})")


def copies_without_blocking(x: Tensor, count: int) -> list[Tensor]:
    """Make products, and copy them to the CPU without waiting."""
    products = [x @ x for _ in range(count)]
    return [y.to("cpu", non_blocking=True) for y in products]


def copies_beside(x: Tensor, count: int) -> list[Tensor]:
    """Make products, copy each on another stream, and wait for the copies."""
    module = torch.get_device_module(x.device)
    copied = []
    copies = module.Stream(x.device)
    for _ in range(count):
        y = x @ x
        copies.wait_stream(module.current_stream(x.device))
        with module.stream(copies):
            copied.append(y.to("cpu", non_blocking=True))
        y.record_stream(copies)
    copies.synchronize()
    return copied


def copies_with_blocking(x: Tensor, count: int) -> list[Tensor]:
    """Make products, and copy them to the CPU one after another."""
    return [y.to("cpu") for y in [x @ x for _ in range(count)]]


def add_up_at_once(version: Version) -> list[Race]:
    """Add up what a version has copied, at once; return the races."""
    (device,) = devices(1, "sim")
    x = torch.ones(SIZE, SIZE, device=device)
    with sim.trace(races=True) as timeline:
        for copied in version(x, COUNT):
            copied.sum()
    return timeline.races or []


def spans_at_once(version: Version) -> None:
    """Look in the trace for a copy during which the device computes."""
    spans = _trace(version)
    copies = [s for s in spans if s.kind == "copy"]
    work = [s for s in spans if s.kind == "compute"]
    shared = sum(
        max(0.0, min(s.end, c.end) - max(s.start, c.start))
        for s in work
        for c in copies
    )
    end = f"{1e3 * max(s.end for s in work):.2f} ms"
    start = f"{1e3 * min(c.start for c in copies):.2f} ms"
    claim(
        shared > 0,
        f"no copy overlaps with the work (copies: {len(copies)}, the last "
        f"product ends at {end}, the first copy starts at {start})",
    )


def time_saved(version: Version) -> None:
    """Compare the time with that of copies that block."""
    seconds, blocking = (
        max(span.end for span in _trace(v))
        for v in (version, copies_with_blocking)
    )
    claim(seconds < blocking, f"no faster ({seconds:.3g}, {blocking:.3g})")


def _trace(version: Version) -> list[Span]:
    """Return what a simulated device computes and copies."""
    (device,) = devices(1, "sim")
    x = torch.ones(SIZE, SIZE, device=device)
    synchronize([device])
    with sim.machine(accelerator=NAME, link="pcie3"), sim.trace() as timeline:
        version(x, COUNT)
        synchronize([device])
    return [span for span in timeline.spans if span.device == str(device)]


EXHIBITS = [
    Exhibit(
        "one synchronized",
        wrong=time_all,
        right=wait_for_each,
        check=work_on_the_last,
        careless=same_work_on_all,
    ),
    Exhibit(
        "one stream",
        wrong=copies_without_blocking,
        right=copies_beside,
        check=spans_at_once,
        careless=time_saved,
    ),
]
