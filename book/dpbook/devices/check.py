"""The checks of the exercises on devices and time."""

from collections.abc import Sequence
from itertools import pairwise

import torch

from dpbook.exercises.verdict import Answer, require
from dpkit import Timer, devices, sim, synchronize
from dpkit.sim.clock import Span

SIZE = 1000  # products of this size are bound by the device


def check_seconds_of(answer: Answer) -> None:
    """Wait for every device, before the clock starts and before it stops."""
    ranks = devices(3, "sim")
    inputs = [torch.ones(SIZE, SIZE, device=d) for d in ranks]

    def work() -> None:
        for count, x in enumerate(inputs, start=1):
            for _ in range(count):
                x @ x

    with Timer(ranks) as timer:
        work()
    for busy in (None, *inputs):
        synchronize(ranks)
        if busy is not None:
            busy @ busy  # still at work when the answer is called
        found = answer(work, ranks)
        why = f"it returned {found!r}, not the seconds"
        require(isinstance(found, float), why)
        taken = timer.seconds
        why = f"it returned {found:.3g}, where the work takes {taken:.3g}"
        why += f"; {busy.device} was busy before" if busy is not None else ""
        require(abs(found - taken) < 0.02 * taken, why)


def check_overlapped(answer: Answer) -> None:
    """Each copy while the next product runs, and after its own."""
    zero = devices(1, "sim")[0]
    x = torch.ones(SIZE, SIZE, device=zero)
    count = 6
    synchronize([zero])
    cards = sim.machine(accelerator="v100-pcie", link="pcie3")
    with cards, sim.trace(races=True) as timeline:
        found = answer(x, count)
        synchronize([zero])
    why = f"{type(found).__name__}, not a list of {count} copies"
    is_list = isinstance(found, list) and len(found) == count
    require(is_list, f"it returned {why}")
    spans = [s for s in timeline.spans if s.device == str(zero)]
    products = [s for s in spans if s.name in ("mm", "matmul")]
    copies = [s for s in spans if s.kind == "copy"]
    for name, some in (("products", products), ("copies", copies)):
        require(len(some) == count, f"it made {len(some)} {name}, not {count}")
    _check_order(products, copies)
    is_freed = any(r.second.what == "frees" for r in timeline.races or [])
    early = "the memory of a product is free before its copy has ended"
    require(not is_freed, early)


def _check_order(products: Sequence[Span], copies: Sequence[Span]) -> None:
    """Require that copies follow their products at once and hold up none."""
    for i, (work, copy) in enumerate(zip(products, copies)):
        early = f"copy {i} starts before its product is done"
        require(copy.start >= work.end, early)
        # It may wait for its product and for the copy before it.
        ready = max(work.end, copies[i - 1].end if i else 0.0)
        late = f"{1e3 * (copy.start - ready):.2f} ms after it could"
        require(copy.start - ready < 1e-5, f"copy {i} starts {late}")
    for i, (one, following) in enumerate(pairwise(products)):
        gap = following.start - one.end
        late = f"{1e3 * gap:.2f} ms after the end of product {i}"
        require(gap < 1e-5, f"product {i + 1} starts {late}")
