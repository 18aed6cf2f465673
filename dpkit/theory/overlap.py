"""When buckets of gradients have been reduced, while backward goes on.

A bucket can leave when its last gradient is there, on the latest rank, and
when the bucket before has been reduced::

    backward       |== g5 g4 ==|== g3 g2 ==|== g1 g0 ==|
    bucket 0                   |=== cost ===|
    bucket 1                                |=== cost ===|      waits for 0
    bucket 2                                             |= cost =|
"""

from collections.abc import Sequence
from itertools import accumulate


def bucket_ends(ready: Sequence[float], costs: Sequence[float]) -> list[float]:
    """Return when each bucket has been reduced.

    ``ready`` says when each is full on the latest rank, ``costs`` how long it
    takes to reduce each, in seconds.

    Example:
        >>> bucket_ends(ready=[2, 4, 6], costs=[3, 3, 1])
        [5, 8, 9]

    Source:
        Li et al., "PyTorch Distributed", 2020, section 3.2.3, for the
        overlap of reduction and backward.
    """
    if len(ready) != len(costs):
        raise ValueError(
            "each bucket needs a time and a cost (times: "
            f"{len(ready)}, costs: {len(costs)})"
        )
    # ready 2 4 6, costs 3 3 1:
    #     max(0, 2) + 3 = 5, max(5, 4) + 3 = 8, max(8, 6) + 1 = 9
    pairs = zip(ready, costs)
    ends = accumulate(
        pairs, lambda end, pair: max(end, pair[0]) + pair[1], initial=0.0
    )
    return list(ends)[1:]


def step_seconds(
    forward: float,
    backward: float,
    ready: Sequence[float],
    costs: Sequence[float],
    update: float = 0.0,
    overlap: bool = True,
) -> float:
    """Return the time of a training step of data parallelism, in seconds.

    ``backward`` is that of the latest rank; ``ready`` and ``costs`` are as
    for :func:`bucket_ends`, from the start of backward. Without ``overlap``
    the buckets leave when backward is done.

    Example:
        >>> times = dict(forward=3, backward=6, ready=[2, 4, 6])
        >>> step_seconds(**times, costs=[3, 3, 1])
        12.0
        >>> step_seconds(**times, costs=[3, 3, 1], overlap=False)
        16.0
    """
    if not overlap:
        return forward + backward + sum(costs) + update
    ends = bucket_ends(ready, costs)
    return forward + max([backward, *ends]) + update
