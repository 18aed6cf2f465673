"""Own script: the checks of its exercises."""

from dpbook.exercises.verdict import Answer, require

MIB = 2**20


def check_most_examples(answer: Answer) -> None:
    """Models that fit, that just fit, and that do not."""
    cases = [
        ((8, 16), (22 * MIB, 35 * MIB), 100 * MIB),
        ((2, 4), (300, 500), 900),
        ((4, 8), (300, 500), 899),
        ((1, 2), (900, 1000), 700),
    ]
    for batches, peaks, room in cases:
        small, large = batches
        peak_of_small, peak_of_large = peaks
        slope = (peak_of_large - peak_of_small) / (large - small)
        fixed = peak_of_small - slope * small
        expected = max(0, int((room - fixed) // slope))
        found = answer(batches, peaks, room)
        require(
            found == expected,
            f"batches {batches}, peaks {peaks}, room {room}: it returned "
            f"{found!r}, expected {expected}",
        )


def check_latest_rank(answer: Answer) -> None:
    """Ranks that are late once, often a little, and never."""
    cases = [
        ([(0.0, 3.0), (5.0, 4.0), (9.0, 8.0)], (1, 3.0)),
        ([(0.0, 1.0, 0.0), (2.0, 2.0, 3.0), (4.0, 4.0, 5.5)], (2, 5.0)),
        ([(9.0, 10.0, 0.0), (9.0, 0.0, 11.0)], (2, 13.0)),
        ([(0.0, 2.0, 2.0)], (1, 2.0)),
        ([(1.0, 1.0), (2.0, 2.0)], (0, 0.0)),
    ]
    for arrivals, (rank, seconds) in cases:
        found = answer(arrivals)
        require(
            isinstance(found, tuple)
            and found[0] == rank
            and abs(found[1] - seconds) < 1e-9,
            f"arrivals {arrivals}: it returned {found!r}, expected "
            f"({rank}, {seconds})",
        )
