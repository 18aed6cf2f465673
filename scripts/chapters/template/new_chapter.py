"""New chapter: the check of its exercise."""

from dpbook.exercises.verdict import Answer, require
from dpkit.sim.hardware import ACCELERATORS, operation_seconds


def check_new_chapter_rate(answer: Answer) -> None:
    """Small products and large ones, on old hardware and new."""
    for name in ("k80", "v100", "h100"):
        accelerator = ACCELERATORS[name]
        for n in (10, 500, 4000):
            flops = 2 * n**3
            expected = flops / operation_seconds(
                accelerator, flops=flops, num_bytes=12 * n**2
            )
            found = answer(n, accelerator)
            require(
                isinstance(found, float) and abs(found / expected - 1) < 0.02,
                f"{name}, n = {n}: it returned {found!r}, expected "
                f"{expected:.3g}",
            )
