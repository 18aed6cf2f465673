"""Make an assignment of the exercises of a chapter.

Usage: python scripts/teaching/make_assignment.py overlap --for plain --seed 7

This writes a folder ``_build/assignment/overlap-plain-7``::

    student/overlap.ipynb      to be handed out
    instructor/overlap.ipynb   with solutions
    assignment.json            the points, for the grader: change them here

With ``--for otter`` there is ``tests`` in place of ``assignment.json``. With
the program ``--otter`` there is ``autograder.zip`` too, for ``otter run`` and
for Gradescope.
"""

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
sys.path[:0] = [str(ROOT / "book"), str(ROOT / "book/_extensions")]

from assignment.chapter import (  # noqa: E402
    exercises_of,
    metadata_of,
    title_of,
)
from assignment.otter_tests import otter_test  # noqa: E402
from assignment.seeded import with_numbers  # noqa: E402
from assignment.sheet import notebook_of  # noqa: E402

from dpbook.assignment.sheets import ASKED, DRAWN  # noqa: E402

TARGETS = ("plain", "otter")
SECONDS = 240  # for a notebook of a submission, its checks included


def write(path: Path, value: object) -> None:
    """Write a value as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(value, indent=1, ensure_ascii=False)
    path.write_text(f"{text}\n", encoding="utf-8")


def make(
    chapter: Path,
    target: str,
    seed: int | None = None,
    hints: bool = True,
    build: Path = ROOT / "_build/assignment",
) -> Path:
    """Make an assignment; return its folder, which is new.

    Args:
        chapter: The notebook of the chapter.
        target: Who grades: "plain" or "otter".
        seed: The number of the sheet; None: the numbers are the book's.
        hints: Whether the notebooks have the hints of the book.
        build: The folder in which the new one is.

    Raises:
        ValueError: If the chapter has no exercises.
    """
    exercises = exercises_of(chapter)
    if not exercises:
        raise ValueError(f"{chapter.stem} has no exercises")
    if not hints:
        exercises = [e._replace(hints="") for e in exercises]
    exercises = [with_numbers(exercise, seed) for exercise in exercises]
    folder = build / f"{chapter.stem}-{target}{_suffix(seed)}"
    shutil.rmtree(folder, ignore_errors=True)
    points = {exercise.name: 1 for exercise in exercises}
    title = title_of(chapter)
    own_numbers = [] if seed is None else [*ASKED]
    for kind in ("student", "instructor"):
        notebook = notebook_of(
            title,
            exercises,
            points,
            metadata=metadata_of(chapter),
            solved=kind == "instructor",
            seed=seed,
            own_numbers=own_numbers,
        )
        write(folder / kind / chapter.name, notebook)
    if target == "otter":
        write_tests(folder / "tests", points, seed)
    else:
        settings = {"chapter": chapter.stem, "seed": seed, "seconds": SECONDS}
        write(folder / "assignment.json", {**settings, "points": points})
    return folder


def write_tests(
    folder: Path, points: dict[str, int], seed: int | None
) -> None:
    """Write the tests of otter-grader, a file for each exercise."""
    folder.mkdir()
    for name, worth in points.items():
        text = otter_test(name, worth, seed)
        (folder / f"{name}.py").write_text(text, encoding="utf-8")


def pack(folder: Path, otter: Path) -> None:
    """Pack the tests into ``autograder.zip``, by otter-grader."""
    command = [str(otter.absolute()), "generate", "--tests-dir", "tests"]
    command += ["--output-path", "autograder.zip"]
    subprocess.run(command, cwd=folder, check=True)


def _suffix(seed: int | None) -> str:
    return "" if seed is None else f"-{seed}"


def what_differs(chapter: Path) -> str:
    """Return a line for each group of exercises that a seed changes or not."""
    names = [exercise.name for exercise in exercises_of(chapter)]
    groups = {
        "other numbers": [n for n in names if n in ASKED],
        "further cases": [n for n in names if n in DRAWN],
        "as in the book": [n for n in names if n not in {*ASKED, *DRAWN}],
    }
    return "\n".join(
        f"{group}: {', '.join(found) or 'none'}"
        for group, found in groups.items()
    )


def main() -> int:
    """Make the assignment that the arguments name."""
    chapters = {p.stem: p for p in sorted((ROOT / "book").glob("*.ipynb"))}
    parser = argparse.ArgumentParser()
    parser.add_argument("chapter")
    parser.add_argument(
        "--for", dest="target", choices=TARGETS, default="plain"
    )
    parser.add_argument("--seed", type=int)
    parser.add_argument("--otter", type=Path)
    parser.add_argument("--no-hints", action="store_true")
    args = parser.parse_args()
    if args.chapter not in chapters:
        known = ", ".join(chapters)
        print(f"no such chapter ({args.chapter!r}; known: {known})")
        return 1
    try:
        folder = make(
            chapters[args.chapter],
            args.target,
            seed=args.seed,
            hints=not args.no_hints,
        )
    except ValueError as error:
        print(error)
        return 1
    if args.otter:
        pack(folder, args.otter)
    print(folder.relative_to(ROOT))
    if args.seed is not None:
        print(what_differs(chapters[args.chapter]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
