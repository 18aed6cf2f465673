"""Bugs that are easy to make, each with the check that catches it.

``exhibit`` -- what an exhibit is, and what its checks say: begin here.

Each other module is a section of the page: ``collectives``, ``processes``,
``ranks``, ``replicas``, ``shards``, ``sequences``, ``experts``, ``meshes``,
``pipelines``, ``timers``, ``losses`` and ``clipping_and_batch_norm``.
"""

from IPython.display import Markdown

from dpbook.common.show import show
from dpbook.museum import (
    clipping_and_batch_norm,
    collectives,
    experts,
    losses,
    meshes,
    pipelines,
    processes,
    ranks,
    replicas,
    sequences,
    shards,
    timers,
)
from dpbook.museum.exhibit import Exhibit
from dpbook.museum.exhibit import claim as claim
from dpbook.museum.exhibit import verdict as verdict

ROOMS = (
    collectives, processes, ranks, replicas, shards, sequences, experts,
    meshes, pipelines, timers, losses, clipping_and_batch_norm,
)  # fmt: skip
EXHIBITS: dict[str, Exhibit] = {
    exhibit.name: exhibit for room in ROOMS for exhibit in room.EXHIBITS
}


def listing(name: str) -> Markdown:
    """Return the source of the wrong version."""
    return show(EXHIBITS[name].wrong)


def tell(name: str) -> Markdown:
    """Print what the checks say; return the check and the right version."""
    bug = EXHIBITS[name]
    cases = [("wrong", bug.wrong, bug.check), ("right", bug.right, bug.check)]
    if bug.careless:
        cases.insert(0, ("wrong", bug.wrong, bug.careless))
    for kind, version, check in cases:
        print(f"{kind} version, {check.__name__}: {verdict(check, version)}")
    return show(bug.check, bug.right)
