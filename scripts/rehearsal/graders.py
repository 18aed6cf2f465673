"""The graders of all exercises, with the values of their devices on a GPU.

Each has to accept the solution of the page and to refuse the stub, though a
GPU rounds otherwise than the CPU.
"""

import sys
from pathlib import Path

from teaching.assignment.chapter import answer_of, exercises_of

import dpkit
from dpbook.common.checks import failure

BOOK = Path(__file__).parent.parent.parent / "book"
EXERCISES = [e for path in BOOK.glob("*.ipynb") for e in exercises_of(path)]


def faults() -> list[str]:
    """Return what graders say wrongly, a line for each."""
    found = []
    for exercise in EXERCISES:
        if why := failure(answer_of(exercise, exercise.solution)):
            found.append(f"{exercise.name}: the solution is refused ({why})")
        if not failure(answer_of(exercise, exercise.stub)):
            found.append(f"{exercise.name}: the stub is accepted")
    return found


if __name__ == "__main__":
    dpkit.sim.configure(backing="cuda:0")
    wrong = faults()
    print(
        *wrong, f"exercises: {len(EXERCISES)}, wrong: {len(wrong)}", sep="\n"
    )
    sys.exit(bool(wrong))
