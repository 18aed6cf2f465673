"""Submissions of assignments: solved, untouched, and wrong as is known."""

import re
from copy import deepcopy
from itertools import zip_longest

from assignment.known import wrong_answers


def wrong_codes():
    """Return the known wrong answers of each exercise, as code."""
    return {
        name: [code for _, code in known]
        for name, known in wrong_answers().items()
    }


def wrong_sheets(names):
    """Yield answers to all of some exercises, until all wrong ones are used.

    An exercise of which fewer are known gets the first one again.
    """
    known = wrong_codes()
    for sheet in zip_longest(*(known[name] for name in names)):
        yield {
            name: code or known[name][0] for name, code in zip(names, sheet)
        }


def filled(notebook, answers):
    """Return a student's notebook with answers, by the name of the exercise.

    An answer stands in the cell of its stub, below what the stub imports.
    """
    done = deepcopy(notebook)
    for cell in done["cells"]:
        code = "".join(cell["source"])
        if "stub" in cell["metadata"].get("tags", []):
            name = re.findall(r"(?m)^def (\w+)", code)[-1]
            if name in answers:
                cell["source"] = f"{code}\n\n\n{answers[name]}"
    return done
