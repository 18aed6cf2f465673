"""The order of the tests: what takes long first, or shuffled by a seed.

``--shuffle=12345`` shuffles the files, and the tests within each file. The
cells of a notebook keep their order, because each needs those above it.

The place of a test follows from its name and the seed alone, so two tests keep
their order when others are left out. pytest-xdist gives a file to whichever
worker is free, so no seed can say which files one worker runs; but those that
it ran can be run again, in the same order, in one process. pytest-random-order
draws another order for every selection, and would come before the sorting
here.
"""

import random
from collections import Counter
from collections.abc import Generator

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take a seed."""
    parser.addoption("--shuffle", metavar="SEED", help="shuffle the tests")


def pytest_report_header(config: pytest.Config) -> str | None:
    """Print the seed."""
    seed = config.getoption("shuffle")
    return f"order: shuffled (seed: {seed})" if seed else None


def draw(seed: str, name: object) -> float:
    """Draw the place of a file or of a test: a number from 0 to 1."""
    return random.Random(f"{seed} {name}").random()


def is_cell(item: pytest.Item) -> bool:
    """Return whether it is a cell of a notebook."""
    return item.path.suffix == ".ipynb"


def shuffle_tests(items: list[pytest.Item], seed: str) -> None:
    """Shuffle the tests, but not the cells of a notebook."""
    items.sort(key=lambda item: is_cell(item) or draw(seed, item.nodeid))


def shuffle_files(items: list[pytest.Item], seed: str) -> None:
    """Bring together the tests of each file, and shuffle the files."""
    places = {item: draw(seed, item.nodeid.split("::")[0]) for item in items}
    items.sort(key=lambda item: places[item])


def begin_with_what_takes_longest(items: list[pytest.Item]) -> None:
    """Make all workers end at one time.

    A worker is given a file at a time. Chapters come first, then the files
    that hold a slow test, then the others, those of many tests before.
    """
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    count = Counter(item.path for item in items if item.path not in slow)
    items.sort(
        key=lambda item: (
            not is_cell(item),
            item.path not in slow,
            -count[item.path],
        )
    )


@pytest.hookimpl(wrapper=True)  # book/conftest.py marks slow chapters within
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Generator[None]:
    """Put the tests in order; within, pytest groups those of one fixture."""
    seed = config.getoption("shuffle")
    if seed:
        shuffle_tests(items, seed)
    yield
    if seed:
        shuffle_files(items, seed)
    else:
        begin_with_what_takes_longest(items)
