"""Grade submitted notebooks of an assignment that was made for "plain".

Usage: python scripts/teaching/grade_assignment.py FOLDER NOTEBOOK…

FOLDER is what ``make assignment`` wrote. This prints a table of points, with
the reason where an exercise earned none and the cells that failed, and writes
``marks.csv`` and ``marks.json`` into FOLDER. A notebook that is not there is
named at the end, and the others are graded.
"""

import csv
import json
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from assignment.marks import Mark, grade, total


def write(marks: Sequence[Mark], folder: Path) -> None:
    """Write some marks as CSV and as JSON."""
    with (folder / "marks.csv").open("w", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(Mark._fields)
        table.writerows(marks)
    rows = [mark._asdict() for mark in marks]
    text = json.dumps(rows, indent=1, ensure_ascii=False)
    (folder / "marks.json").write_text(f"{text}\n", encoding="utf-8")


def main() -> int:
    """Grade one notebook after another; return the exit status."""
    folder, *submissions = map(Path, sys.argv[1:])
    assignment = folder / "assignment.json"
    lacking = [path for path in submissions if not path.is_file()]
    there = [path for path in submissions if path not in lacking]
    named = ", ".join(map(str, lacking))
    if not assignment.is_file():
        print(f"no assignment is there ({assignment})", file=sys.stderr)
        return 1
    if not there:
        why = named or "no notebook is given"
        print(f"nothing to grade ({why})", file=sys.stderr)
        return 1
    marks: list[Mark] = []
    for submission in there:
        found = grade(submission, assignment)
        print(f"{submission}: {total(found)}")
        for mark in found:
            earned = f"{mark.points} of {mark.of}"
            print(f"  {mark.exercise:28} {earned:8} {mark.why}")
        marks += found
    write(marks, folder)
    if lacking:
        print(f"not graded, as no file is there ({named})", file=sys.stderr)
    return 1 if lacking else 0


if __name__ == "__main__":
    sys.exit(main())
