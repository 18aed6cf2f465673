"""Write the tests by which otter-grader grades an assignment.

There is one file for each exercise, in the format that otter calls OK. Its
case is hidden: students do not get it, and it calls the book's own check.
"""

from pprint import pformat

CASE = """\
>>> from dpbook.assignment.grading import refusal
>>> refusal({name!r}, {name}, seed={seed})
"""


def otter_test(name: str, points: int, seed: int | None = None) -> str:
    """Return the file of tests for an exercise.

    An answer passes if nothing is printed; else otter shows why.

    Args:
        name: The name of the exercise, which is that of its function.
        points: What it is worth.
        seed: The number of the sheet; None: the numbers are the book's.

    Example:
        >>> from assignment.otter_tests import otter_test
        >>> names = {}
        >>> exec(otter_test("cut_buckets", 2), names)
        >>> names["test"]["points"]
        2
    """
    case = {
        "code": CASE.format(name=name, seed=seed),
        "hidden": True,
        "locked": False,
    }
    suite = {
        "cases": [case],
        "scored": True,
        "setup": "",
        "teardown": "",
        "type": "doctest",
    }
    test = {"name": name, "points": points, "suites": [suite]}
    return f"OK_FORMAT = True\n\ntest = {pformat(test, sort_dicts=False)}\n"
