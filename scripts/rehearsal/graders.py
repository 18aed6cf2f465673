"""The graders of all exercises, with the values of their devices on a GPU.

Each has to accept the solution of the page and to refuse the stub, though a
GPU rounds otherwise than the CPU.
"""

import sys

import dpkit
from dpbook.common.checks import failure
from tests.book.test_exercises import PAGES, exercises


def faults() -> list[str]:
    """Return what graders say wrongly, a line for each."""
    found = []
    for name, page in PAGES.items():
        exercise = exercises(page)[name]
        if why := failure(exercise.solution):
            found.append(f"{name}: the solution is refused ({why})")
        if not failure(exercise.stub):
            found.append(f"{name}: the stub is accepted")
    return found


if __name__ == "__main__":
    dpkit.sim.configure(backing="cuda:0")
    wrong = faults()
    print(*wrong, f"exercises: {len(PAGES)}, wrong: {len(wrong)}", sep="\n")
    sys.exit(bool(wrong))
