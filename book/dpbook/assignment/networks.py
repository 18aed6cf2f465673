"""Three networks of a sheet, each to be split within two limits."""

from functools import partial
from itertools import product
from math import ceil
from random import Random

from dpbook.assignment.asked import Asked
from dpbook.exercises.splitting import (
    DESIGNS,
    NUM_DEVICES,
    Design,
    check_three_designs,
    ms_and_mb,
)
from dpbook.formulas.splits import WAYS

Choice = tuple[str, int]


def choices(design: Design) -> list[Choice]:
    """Return the ways that meet both targets on the fewest devices.

    Example:
        >>> [choices(design) for design in DESIGNS]
        [[('data', 8)], [('layer', 4)], [('network', 4)]]
    """
    for k in NUM_DEVICES:
        found = [(way, k) for way in WAYS if _meets(way, k, design)]
        if found:
            return found
    return []


def _meets(way: str, k: int, design: Design) -> bool:
    ms, mb = ms_and_mb(way, k, design)
    return ms <= design.most_ms and mb <= design.most_mb


def draw_design(random: Random) -> Design:
    """Draw a network and targets that one way meets on the fewest devices.

    Example:
        >>> len(choices(draw_design(Random(0))))
        1
    """
    while True:
        network = Design(
            link=random.choice(("nvlink2", "pcie3")),
            rows=random.choice((1024, 2048, 4096, 8192)),
            width=random.choice((2048, 4096, 8192)),
            most_ms=0,
            most_mb=0,
        )
        way, k = random.choice(WAYS), random.choice(NUM_DEVICES)
        ms, mb = ms_and_mb(way, k, network)
        design = network._replace(
            most_ms=ceil(1.1 * ms / 5) * 5, most_mb=ceil(1.1 * mb / 50) * 50
        )
        if choices(design) == [(way, k)]:
            return design


def row_of(design: Design) -> str:
    """Return the row of a network in the table of the exercise.

    Example:
        >>> row_of(DESIGNS[0])
        '| `"nvlink2"` | 8,192 | 2,048 | 20 ms | 250 MB |'
    """
    numbers = f"{design.rows:,} | {design.width:,}"
    targets = f"{design.most_ms} ms | {design.most_mb} MB"
    return f'| `"{design.link}"` | {numbers} | {targets} |'


def draw_three_designs(random: Random) -> Asked:
    """Draw three networks that are split in more than one way."""
    while True:
        designs = [draw_design(random) for _ in DESIGNS]
        keys = [*product(*map(choices, designs))]
        if len({way for way, _ in keys[0]}) > 1:
            break
    rows = {row_of(old): row_of(new) for old, new in zip(DESIGNS, designs)}
    return Asked(
        phrases=rows,
        check=partial(check_three_designs, designs=designs),
        keys=[list(key) for key in keys],
    )
