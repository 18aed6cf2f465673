"""The check of the exercise on the largest batch."""

import torch

from dpbook.exercises.verdict import Answer, require


def check_largest_batch(answer: Answer) -> None:
    """The largest batch that fits, in few attempts, for any limit."""
    for limit in (1, 2, 3, 64, 1000, 54_321):
        attempts: list[int] = []

        def step(
            rows: int, limit: int = limit, attempts: list[int] = attempts
        ) -> None:
            attempts.append(rows)
            require(rows >= 1, f"it tried a batch of {rows}")
            if rows > limit:
                raise torch.OutOfMemoryError("out of memory")

        found = answer(step)
        why = f"batches of up to {limit} fit; it returned {found}"
        require(found == limit, why)
        enough = 2 * limit.bit_length() + 3
        why = f"{len(attempts)} attempts to find {limit}, where {enough} do"
        require(len(attempts) <= enough, f"it took {why}")
