"""Bugs that people have made, each with the check that catches it.

``exhibit`` -- what an exhibit is, and what its checks say;
``parity`` -- a step on k devices beside the step of one;
the other modules are the rooms, one for each section of the page.
"""

from __future__ import annotations

from IPython.display import Markdown

from dpkit.lab.common.show import show
from dpkit.lab.museum import (
    clipping_and_batch_norm,
    collectives,
    losses,
    pipelines,
    processes,
    replicas,
    timers,
)
from dpkit.lab.museum.exhibit import Exhibit, verdict

ROOMS = [
    *(collectives, processes, replicas, pipelines, timers, losses),
    clipping_and_batch_norm,
]
EXHIBITS: dict[str, Exhibit] = {
    exhibit.name: exhibit for room in ROOMS for exhibit in room.EXHIBITS
}


def listing(name: str) -> Markdown:
    """Return the source of the wrong version, and of what catches it.

    Example:
        >>> print(listing("chunk").data.splitlines()[1])
        def by_chunk(x: Tensor, devices: Devices) -> list[Tensor]:
    """
    return show(EXHIBITS[name].wrong, EXHIBITS[name].check)


def tell(name: str) -> None:
    """Print what the checks of an exhibit say of its two versions.

    Example:
        >>> tell("element 0")  # doctest: +NORMALIZE_WHITESPACE
        piece_by_piece, element_0: passes
        piece_by_piece, all_elements: AssertionError: rank 0 does not hold
        the sum (elements: 11, wrong: 4, 5, 6, 7, 8, 9, 10)
        allreduce, all_elements: passes
    """
    bug = EXHIBITS[name]
    cases = [(bug.wrong, bug.check), (bug.right, bug.check)]
    if bug.careless:
        cases.insert(0, (bug.wrong, bug.careless))
    for version, check in cases:
        found = verdict(check, version)
        print(f"{version.__name__}, {check.__name__}: {found}")


__all__ = ["EXHIBITS", "Exhibit", "listing", "tell"]
