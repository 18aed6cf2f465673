"""Further cases of a sheet, for exercises whose answer is a program.

Their text is that of the book, and so is the solution. The check goes through
the cases of the book and then through these, so an answer that only knows the
cases of the book is refused.
"""

from collections.abc import Callable, Sequence
from math import nan
from random import Random
from typing import Any

from dpbook.exercises.splitting import Chain

NUM_CASES = 4


def best_interval(random: Random) -> tuple[float, float]:
    """Draw the seconds of a save, and those between failures."""
    return random.randint(1, 600), random.randint(1, 1000) * 3600.0


def rows_of_rank(random: Random) -> tuple[int, int]:
    """Draw a world size and one of the three steps that there are."""
    return random.randint(2, 9), random.randint(0, 2)


def rate_of_step(random: Random) -> tuple[int, float, int, int, int]:
    """Draw a step, a rate, k, a warm-up, and when the rate falls."""
    warmup = random.randint(3, 9)
    slow = warmup + random.randint(3, 20)
    rate = random.randint(1, 9) / 100
    return (
        random.randint(1, slow + 5),
        rate,
        random.randint(2, 16),
        warmup,
        slow,
    )


def critical_batch(
    random: Random,
) -> tuple[tuple[int, int], tuple[float, float]]:
    """Draw two batch sizes, and what is to be found from their steps."""
    small, large = random.sample(range(8, 1024, 8), k=2)
    return (small, large), (
        float(random.randint(20, 400)),
        float(random.randint(16, 4096)),
    )


def what_to_keep(random: Random) -> tuple[list[tuple[int, float]], int]:
    """Draw results in bytes and seconds, and the bytes that there are."""
    results = [
        (random.randint(1, 12), random.randint(1, 12) / 2) for _ in range(8)
    ]
    return results, random.randint(10, 40)


def fill_buckets(random: Random) -> tuple[list[int], int]:
    """Draw the sizes of parameters, and the limit of a bucket."""
    count = random.randint(4, 9)
    sizes = [random.randint(1, 9) for _ in range(count)]
    return sizes, random.randint(4, 15)


def best_count(random: Random) -> tuple[float, float]:
    """Draw the seconds of the work, and the cost of a micro-batch."""
    return random.randint(1, 99) / 10, random.randint(1, 99) / 100


def exact_accuracy(random: Random) -> tuple[int, list[int]]:
    """Draw a number of ranks, and which answers are right."""
    count = random.randint(5, 12)
    return random.randint(2, 5), random.choices((0, 1), k=count)


def pair_to_fuse(random: Random) -> tuple[list[int], list[int], int]:
    """Draw times, what each pair saves, and a launch, in microseconds."""
    times = [random.randint(2, 40) for _ in range(random.randint(4, 8))]
    return times, [random.randint(1, t) for t in times[1:]], 10


def rows_for(random: Random) -> tuple[list[int], int]:
    """Draw the microseconds that a row takes on each device, and rows."""
    count = random.randint(2, 5)
    micros = [random.randint(1, 12) for _ in range(count)]
    return micros, random.randint(3, 60)


def speedups(random: Random) -> dict[int, float]:
    """Draw the seconds that each number of devices takes."""
    counts = [1, *random.sample(range(2, 17), k=3)]
    return {k: random.randint(10, 90) / 2 for k in counts}


def best_num_devices(random: Random) -> tuple[float, float, float]:
    """Draw the seconds that are not split, are split, and are added."""
    return (
        float(random.randint(0, 20)),
        float(random.randint(20, 2000)),
        random.randint(1, 99) / 10,
    )


def ring_or_ulysses(random: Random) -> tuple[int, int, int, float]:
    """Draw devices, heads, tokens on each, and flops for a byte."""
    k, heads = random.choice((2, 3, 4, 8)), random.choice((12, 16, 32))
    return (
        k,
        heads,
        random.randint(3, 400) * 100,
        random.randint(5, 90) * 100.0,
    )


def pieces_to_load(random: Random) -> tuple[int, int, int]:
    """Draw how many values there are, and the ranks before and after."""
    return random.randint(5, 30), random.randint(1, 6), random.randint(1, 6)


def columns_or_rows(random: Random) -> Chain:
    """Draw the widths of a chain of layers, and what stands between them."""
    count = random.randint(3, 6)
    widths = [random.choice((2, 4, 8, 16, 32, 64)) for _ in range(count)]
    return widths, random.choices(("relu", "norm"), k=count - 2)


def mean_of_ranks(random: Random) -> tuple[list[int], list[float]]:
    """Draw the examples of each rank, one of which has none, and means."""
    counts = [random.randint(1, 9) for _ in range(random.randint(2, 5))]
    means = [random.randint(-40, 40) / 4 for _ in counts]
    return [*counts, 0], [*means, nan]


Draw = Callable[[Random], Any]
DRAWN: dict[str, Draw] = {
    "best_interval": best_interval,
    "rows_of_rank": rows_of_rank,
    "rate_of_step": rate_of_step,
    "critical_batch": critical_batch,
    "what_to_keep": what_to_keep,
    "fill_buckets": fill_buckets,
    "best_count": best_count,
    "exact_accuracy": exact_accuracy,
    "pair_to_fuse": pair_to_fuse,
    "rows_for": rows_for,
    "speedups": speedups,
    "best_num_devices": best_num_devices,
    "ring_or_ulysses": ring_or_ulysses,
    "pieces_to_load": pieces_to_load,
    "columns_or_rows": columns_or_rows,
    "mean_of_ranks": mean_of_ranks,
}


def more_cases(name: str, random: Random) -> Sequence[Any]:
    """Return the further cases of an exercise.

    Args:
        name: A name in ``DRAWN``.
        random: What draws them.

    Example:
        >>> len(more_cases("rows_for", Random(7)))
        4
    """
    return [DRAWN[name](random) for _ in range(NUM_CASES)]
