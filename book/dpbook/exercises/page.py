"""Run and check what a reader has written into a page.

The page sends what stands in the editor and shows what comes back::

    {"code": "def sends_first(rank, p): …", "exercise": "sends_first"}
    {"printed": "", "value": "", "why": "2 ranks: all wait for ever",
     "solved": false}

Without ``exercise`` the code is run and not checked. The code runs in a
new namespace, and what it sets elsewhere is set back, so what the last run
has left is gone. The page stops a loop without an end.
"""

import ast
import builtins
import json
import linecache
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from typing import Any

from dpbook.exercises.errors import FILE, sentence, trace
from dpbook.exercises.listed import CHECKS
from dpbook.exercises.undone import undone
from dpbook.exercises.verdict import NotYet
from dpkit.units import check_known

MOST_PRINTED = 5_000  # characters


class Printed(StringIO):
    """What code prints. The page gets its beginning at once.

    So it is there if the page stops the code.
    """

    def write(self, text: str) -> int:
        """Keep a text, and hand it to the page while there is room."""
        room = MOST_PRINTED - self.tell()
        if room > 0:
            _hand_over(text[:room])
        return super().write(text)


def _hand_over(text: str) -> None:
    """Give a text to the page, by a function of engine.js; else to nobody."""
    try:
        from js import dpkitPrinted  # type: ignore[import-not-found]
    except ImportError:  # this is no page
        return
    dpkitPrinted(text)


def run_code(request: str) -> str:
    r"""Run a reader's code and check it; request and result are JSON.

    What is printed includes what goes to stderr, and the traceback of an
    error. The value is that of the last line, as ``repr`` writes it; it is
    empty where that line is no expression, or is ``None``.

    Example:
        >>> import json
        >>> code = "def sends_first(rank, p): return rank / 0\nprint(6)\n7"
        >>> said = run_code(json.dumps({"code": code}))
        >>> said
        '{"printed": "6\\n", "value": "7", "why": "", "solved": false}'
        >>> asked = {"code": code, "exercise": "sends_first"}
        >>> json.loads(run_code(json.dumps(asked)))["why"]
        'line 1: ZeroDivisionError: division by zero'
    """
    asked = json.loads(request)
    code, exercise = asked["code"], asked.get("exercise")
    if exercise:
        check_known("exercise", exercise, CHECKS)
    # Tracebacks and warnings quote the lines of the code.
    lines = code.splitlines(keepends=True)
    linecache.cache[FILE] = (len(code), None, lines, FILE)
    values: list[str] = []
    printed = Printed()
    with redirect_stdout(printed), redirect_stderr(printed):
        error = _error_of(lambda: _run(code, exercise, values))
    why, traced = "", ""
    if isinstance(error, NotYet):
        why = str(error)
    elif error:
        why, traced = sentence(error), trace(error)
    found = {
        "printed": _cut(printed.getvalue()) + traced,
        "value": _cut("".join(values)),
        "why": why,
        "solved": bool(exercise) and error is None,
    }
    return json.dumps(found, ensure_ascii=False)


def _run(code: str, exercise: str | None, values: list[str]) -> None:
    """Run the code, note the value of its last line, and check it."""
    builtins.input = _nobody_to_ask
    names: dict[str, Any] = {"__name__": "your_code"}
    value = _execute(code, names)
    if value is not None:
        values.append(repr(value))
    if exercise:
        answer = names.get(exercise)
        if not callable(answer):
            raise NotYet(f"the code defines no function {exercise}")
        CHECKS[exercise](answer)


def _execute(code: str, names: dict[str, Any]) -> Any:
    """Run code; return the value of its last line, if that is an expression.

    Args:
        code: What a reader has written.
        names: The namespace in which it runs.
    """
    tree = ast.parse(code, FILE)
    last = tree.body[-1] if tree.body else None
    if not isinstance(last, ast.Expr):
        exec(compile(tree, FILE, "exec"), names)
        return None
    tree.body.pop()
    exec(compile(tree, FILE, "exec"), names)
    return eval(compile(ast.Expression(last.value), FILE, "eval"), names)


def _nobody_to_ask(prompt: object = "") -> str:
    """Stand in for ``input``, which has no keyboard to read from."""
    raise RuntimeError(
        "the page cannot read from the keyboard while it runs code; write the"
        ' value into the code, such as x = "3"'
    )


def _error_of(run: Callable[[], None]) -> BaseException | None:
    """Return what a run raised; what it set in modules is set back."""
    try:
        with undone():
            run()
    except BaseException as error:  # the reader's code may raise anything
        return error
    return None


def _cut(text: str) -> str:
    """Return a text, or its beginning if it is long."""
    if len(text) <= MOST_PRINTED:
        return text
    return f"{text[:MOST_PRINTED]}\n… ({len(text):,} characters)\n"
