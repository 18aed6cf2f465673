"""Run and check what a reader has written into a page.

The page sends what stands in the editor and shows what comes back::

    {"code": "def sends_first(rank, p): …", "exercise": "sends_first"}
    {"printed": "", "why": "2 ranks: all wait for ever", "solved": false}

Without ``exercise`` the code is run and not checked. The code runs in a
new namespace, so what the last run has left is gone. The page stops a loop
without an end.
"""

import json
import traceback
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

from dpbook.exercises.listed import CHECKS
from dpbook.exercises.verdict import NotYet
from dpkit.theory.units import check_known

FILE = "<your code>"  # what a traceback calls it
MOST_PRINTED = 5_000  # characters


def run_code(request: str) -> str:
    r"""Run a reader's code and check it; request and result are JSON.

    Example:
        >>> import json
        >>> code = "print(6)\ndef sends_first(rank, p): return rank / 0"
        >>> said = run_code(json.dumps({"code": code}))
        >>> said
        '{"printed": "6\\n", "why": "", "solved": false}'
        >>> asked = {"code": code, "exercise": "sends_first"}
        >>> json.loads(run_code(json.dumps(asked)))["why"]
        'line 2: ZeroDivisionError: division by zero'
    """
    asked = json.loads(request)
    exercise = asked.get("exercise")
    if exercise:
        check_known("exercise", exercise, CHECKS)
    printed = StringIO()
    with redirect_stdout(printed):
        why = _trouble(lambda: _run(asked["code"], exercise))
    text = printed.getvalue()
    if len(text) > MOST_PRINTED:
        text = f"{text[:MOST_PRINTED]}\n… ({len(text):,} characters)"
    solved = bool(exercise) and why is None
    found = {"printed": text, "why": why or "", "solved": solved}
    return json.dumps(found, ensure_ascii=False)


def _run(code: str, exercise: str | None) -> None:
    names: dict[str, Any] = {"__name__": "your_code"}
    exec(compile(code, FILE, "exec"), names)
    if exercise:
        answer = names.get(exercise)
        if not callable(answer):
            raise NotYet(f"the code defines no function {exercise}")
        CHECKS[exercise](answer)


def _trouble(run: Callable[[], None]) -> str | None:
    """Return why a run did not pass, with the line of the reader's code."""
    try:
        run()
    except NotYet as error:
        return str(error)
    except SyntaxError as error:
        place = f"line {error.lineno}: " if error.filename == FILE else ""
        return f"{place}SyntaxError: {error.msg}"
    except BaseException as error:  # the reader's code may raise anything
        # The library of a page tells no lines: extract_tb would stop there.
        steps = traceback.walk_tb(error.__traceback__)
        lines = [n for frame, n in steps if frame.f_code.co_filename == FILE]
        place = f"line {lines[-1]}: " if lines else ""
        return f"{place}{type(error).__name__}: {error}"
    return None
