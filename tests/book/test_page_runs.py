"""What the page says of code that a reader runs or has checked."""

import json
import re
import sys
import warnings
from types import SimpleNamespace

import pytest

from dpbook.exercises.page import MOST_PRINTED, run_code

CUT = "def cut_buckets(): return [1, 1, 2, 2, 3, 1]"


def checked(name, code):
    return json.loads(run_code(json.dumps({"exercise": name, "code": code})))


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("x = 1\ny = = 2", "line 2: SyntaxError: invalid syntax"),
        ("x = 1\n  y = 2", "line 2: IndentationError: unexpected indent"),
        ("\n\n1 / 0", "line 3: ZeroDivisionError: division by zero"),
        ("def sends_first(rank, p):\n    return rank.p",
         "line 2: AttributeError: 'int' object has no attribute 'p'"),
        ("def sends_first(rank):\n    return True",
         "TypeError: sends_first() takes 1 positional argument but 2 were"),
        ("raise SystemExit(3)", "line 1: SystemExit: 3"),
        ("def send_first(rank, p): pass",
         "the code defines no function sends_first"),
        ("sends_first = 4", "the code defines no function sends_first"),
    ],
)  # fmt: skip
def test_an_error_names_the_line_of_the_reader(code, why):
    assert checked("sends_first", code)["why"].startswith(why)


def ran(code):
    return checked(None, code)


def test_a_run_leaves_nothing_to_the_next():
    assert ran("left = print(4)") == {
        "printed": "4\n", "value": "", "why": "", "solved": False,
    }  # fmt: skip
    assert "NameError" in ran("left")["why"]


@pytest.mark.filterwarnings("ignore:heard")
@pytest.mark.parametrize(
    ("spoils", "uses", "value"),
    [
        ("import builtins; builtins.print = None", "print(6)", ""),
        ("import builtins; del builtins.len", "len('ab')", "2"),
        ("import math; math.pi = 3", "import math; math.pi > 3", "True"),
        ("import math; math.tau_2 = 3",
         "import math; hasattr(math, 'tau_2')", "False"),
        # This module is not there before the first run.
        ("import this_is as m; m.four = 5",
         "import this_is as m; m.four", "4"),
        ("import dpkit.units as u; u.check_known = 1",
         "import dpkit.units as u; callable(u.check_known)", "True"),
        ("import sys; sys.setrecursionlimit(5000)",
         f"import sys; sys.getrecursionlimit() == {sys.getrecursionlimit()}",
         "True"),
        ("import warnings; warnings.simplefilter('error')",
         "import warnings; warnings.warn('heard')", ""),
        ("input = 3", "input.__name__ != ''", "True"),
    ],
)  # fmt: skip
def test_what_a_run_sets_in_modules_is_set_back(
    spoils, uses, value, tmp_path, monkeypatch
):
    (tmp_path / "this_is.py").write_text("four = 4\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert ran(spoils)["why"] == ""
    found = ran(uses)
    assert (found["why"], found["value"]) == ("", value)
    assert "this_is" not in sys.modules


def test_the_value_of_the_last_line_is_told():
    assert ran("x = 6\nx * 7")["value"] == "42"
    assert ran("'ab'")["value"] == "'ab'"
    assert ran("None")["value"] == ran("x = 6")["value"] == ""
    assert ran("print(1)\n2") == {
        "printed": "1\n", "value": "2", "why": "", "solved": False,
    }  # fmt: skip
    solved = checked("cut_buckets", f"{CUT}\n6 * 7")
    assert (solved["solved"], solved["value"]) == (True, "42")


def test_stderr_and_warnings_are_printed_in_their_order(monkeypatch):
    # As Python does, and not as pytest, which collects warnings.
    monkeypatch.setattr(
        warnings,
        "showwarning",
        lambda *warning: sys.stderr.write(
            warnings.formatwarning(*warning[:4])
        ),
    )
    found = ran(
        "import sys, warnings\n"
        "print('one')\n"
        "print('two', file=sys.stderr)\n"
        "warnings.warn('three')\n"
    )
    assert found["printed"] == (
        "one\ntwo\n<your code>:4: UserWarning: three\n"
        "  warnings.warn('three')\n"
    )


def test_a_traceback_quotes_the_lines_of_the_reader():
    code = (
        "def share(n):\n    return 1 / n\n\n"
        "def shares(n):\n    return [*map(share, range(n))]\n\nshares(3)\n"
    )
    assert ran(code)["printed"] == (
        "Traceback (most recent call last):\n"
        '  File "<your code>", line 7, in <module>\n    shares(3)\n'
        '  File "<your code>", line 5, in shares\n'
        "    return [*map(share, range(n))]\n"
        '  File "<your code>", line 2, in share\n    return 1 / n\n'
        "ZeroDivisionError: division by zero\n"
    )


def test_a_traceback_shows_where_the_syntax_is_wrong():
    assert ran("x = 1\ny = = 2")["printed"] == (
        '  File "<your code>", line 2\n    y = = 2\n        ^\n'
        "SyntaxError: invalid syntax\n"
    )


@pytest.mark.parametrize(
    "code", ["def a(): b()\ndef b(): a()\na()", "def b(): b()\n\nb()"]
)
def test_a_traceback_of_an_endless_recursion_is_short(code):
    lines = ran(code)["printed"].splitlines()
    assert lines[1] == '  File "<your code>", line 3, in <module>'
    assert lines[-1].startswith("RecursionError: ")
    assert len(lines) < 50
    (left,) = re.findall(r"… \((\d+) more calls\)", "".join(lines))
    assert int(left) > 500


def test_what_is_printed_is_handed_over_at_once_and_not_for_ever(monkeypatch):
    handed = []
    monkeypatch.setitem(
        sys.modules, "js", SimpleNamespace(dpkitPrinted=handed.append)
    )
    code = "print('so far')\nfor i in range(9_000):\n    print('x', end='')"
    found = json.loads(run_code(json.dumps({"code": code})))
    assert found["printed"].startswith("so far\nxxx")
    assert "".join(handed) == f"so far\n{'x' * (MOST_PRINTED - 7)}"


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("import torch",
         "line 1: PyTorch does not run in the page; the exercise can be "
         "solved without it, and in a notebook of the book you can import "
         "torch"),
        ("\nfrom torch.nn import Linear", "line 2: PyTorch does not run"),
        ("import numpy as np", "line 1: numpy does not run in the page;"),
        ("from dpkit import no_such_name",
         "line 1: the page has dpkit.plans, dpkit.schedules and the hardware"),
        ("import sqlite3",
         "line 1: the page has Python's library without sqlite3;"),
        ("import maths",
         "line 1: ModuleNotFoundError: No module named 'maths'"),
        ("from dpkit.plans import no_such_name",
         "line 1: ImportError: cannot import name 'no_such_name'"),
        ("x = 2\ny = input('y: ')",
         "line 2: RuntimeError: the page cannot read from the keyboard"),
    ],
)  # fmt: skip
def test_a_sentence_says_what_the_page_does_not_have(code, why, monkeypatch):
    for name in ("torch", "torch.nn", "numpy", "sqlite3"):  # as in a page
        monkeypatch.setitem(sys.modules, name, None)
    found = ran(code)
    assert found["why"].startswith(why)
    assert found["printed"].startswith("Traceback (most recent call last):")


def test_much_that_is_printed_is_cut():
    printed = ran("print('x' * 10**6)")["printed"]
    assert printed.endswith("… (1,000,001 characters)\n")
    assert len(printed) < 6_000
    assert len(ran("'x' * 10**6")["value"]) < 6_000
    cut = ran("print('x' * 10**6)\n1 / 0")["printed"]
    assert cut.endswith("ZeroDivisionError: division by zero\n")
