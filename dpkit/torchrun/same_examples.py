"""Whether one rank was given the examples that several had together."""

from collections.abc import Sequence

import torch

from dpkit.torchrun.kept import Kept
from dpkit.torchrun.model_facts import Examples

_SAME = 1e-6  # relative: rows are added up in another order


def steps_with_same_examples(one: Kept, several: Sequence[Kept]) -> int:
    """Return in how many steps, from the first on, examples are the same."""
    steps = min(len(rank.facts) for rank in (one, *several))
    for step in range(steps):
        if unseen(one, several, step):
            return step
    return steps


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
    common = int(_are_among(ours, theirs).sum())
    if common == len(ours) and bool(_are_among(theirs, ours).all()):
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


def _are_among(some: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    """Return which numbers are among others."""
    scale = _SAME * float(others.abs().max())
    return (some[:, None] - others).abs().min(1).values <= scale
