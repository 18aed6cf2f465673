"""Checks of the exercises on sending while computing."""

from dpkit.theory.exercises.verdict import Answer, require_reference
from dpkit.theory.overlap import bucket_ends


def check_ends_of_buckets(answer: Answer) -> None:
    """Where gradients are late, where the network is, and both in turn."""
    cases = [
        ([1.0, 2.0, 9.0], [0.5, 0.5, 0.5]),
        ([1.0, 2.0, 3.0], [4.0, 4.0, 4.0]),
        ([2.0, 4.0, 20.0, 21.0], [3.0, 5.0, 7.0, 0.5]),
        ([], []),
    ]
    require_reference(answer, bucket_ends, cases, "ready at {0}, costs {1}")


def check_fill_buckets(answer: Answer) -> None:
    """From the last to the first; none too full unless it holds one."""

    def from_the_last(sizes: list[int], room: int) -> list[list[int]]:
        buckets: list[list[int]] = []
        for place in reversed(range(len(sizes))):
            filled = sum(sizes[i] for i in buckets[-1]) if buckets else room
            if filled + sizes[place] > room:
                buckets.append([])
            buckets[-1].append(place)
        return buckets

    cases = [
        ([4, 4, 4, 4], 8),
        ([3, 9, 2, 2, 5], 6),
        ([5], 3),
        ([1, 2, 3, 4, 5, 6], 100),
    ]
    require_reference(answer, from_the_last, cases, "sizes {0}, room for {1}")


def check_server_seconds(answer: Answer) -> None:
    """One server, as many as workers, and more than workers."""

    def reference(p: int, s: int, n: float, a: float, b: float) -> float:
        return 2 * max(p, s) * (a + n / s * b)

    sizes = (4, 1), (4, 2), (4, 4), (2, 3), (8, 8)
    cases = [(p, s, 160e6, 1e-5, 1 / 16e9) for p, s in sizes]
    words = "{0} workers, {1} servers"
    require_reference(answer, reference, cases, words, ".5f", 1e-9)
