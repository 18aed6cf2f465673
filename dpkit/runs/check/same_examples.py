"""Whether one rank was given the examples that several had together."""

from collections.abc import Sequence

import torch

from dpkit.runs.check.kept import Kept
from dpkit.runs.check.model_facts import Examples

_SAME = 1e-6  # relative: rows are added up in another order


def steps_with_same_examples(one: Kept, several: Sequence[Kept]) -> int:
    """Return in how many steps, from the first on, examples are the same."""
    steps = min(len(rank.facts) for rank in (one, *several))
    for step in range(steps):
        if unseen(one, several, step):
            return step
    return steps


def are_seen(ranks: Sequence[Kept]) -> bool:
    """Return whether it is known which examples models were given.

    It is not where a model gets a class of the script's own.
    """
    return any(step.examples for rank in ranks for step in rank.facts)


def unseen(one: Kept, several: Sequence[Kept], step: int) -> str:
    """Return which examples of a step not both have; "" if both have all.

    Where ranks share the parts of an example, or the layers of a model, it is
    not known, and nothing is said.
    """
    own = one.facts[step].examples
    of_ranks = [x for rank in several for x in rank.facts[step].examples]
    widths = {x.width for x in (*own, *of_ranks)}
    if len(widths) != 1 or _are_stages(several):
        return ""
    ours, theirs = _numbers(own), _numbers(of_ranks)
    common = int((places_among(ours, theirs) >= 0).sum())
    if common == len(ours) == len(theirs):
        return ""
    return (
        f"in step {step + 1} one rank has {len(ours)} examples, of which "
        f"{common} are among the {len(theirs)} of {len(several)} ranks"
    )


def _are_stages(several: Sequence[Kept]) -> bool:
    """Return whether ranks have different parameters."""
    names = [set(rank.digests[0].before) for rank in several if rank.digests]
    return any(found != names[0] for found in names)


def _numbers(examples: Sequence[Examples]) -> torch.Tensor:
    found = [number for x in examples for number in x.numbers]
    return torch.tensor(found, dtype=torch.float64, device="cpu")


def places_among(some: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    """Return where among other numbers each of some stands; -1: nowhere.

    Numbers are equal up to rounding. One that ``some`` has twice has to be
    among the others twice, and then has two places.

    Args:
        some: Of shape (n,).
        others: Of shape (m,).
    """
    # some      5 3 5      in order 3 5 5, the nth of equal ones 0 0 1
    # others    5 9 5 3    in order 3 5 5 9, at the places       3 0 2 1
    #
    # 3 begins at 0 in that order, and 5 at 1: 3 has the place 3, and the two
    # of 5 have the places 0 and 2.
    if not len(others):
        return torch.full_like(some, -1, dtype=torch.long)
    slack = _SAME * float(others.abs().max())
    of_some, of_others = some.argsort(), others.argsort()
    ours, theirs = some[of_some], others[of_others]
    nth = torch.arange(len(ours), device="cpu")
    nth -= torch.searchsorted(ours, ours - slack)
    found = torch.searchsorted(theirs, ours - slack) + nth
    is_last = found >= len(theirs)
    found = found.masked_fill(is_last, 0)
    is_there = ~is_last & ((ours - theirs[found]).abs() <= slack)
    places = torch.empty_like(of_some)
    places[of_some] = of_others[found].where(is_there, torch.tensor(-1))
    return places
