"""What a page says of an error in a reader's code."""

import sys
import traceback

FILE = "<your code>"  # what a traceback calls it
MOST_CALLS = 20  # of a traceback, and an even number
# What pages have of dpkit: it needs Python's library alone.
IN_PAGES = (
    *("dpkit.plans", "dpkit.schedules", "dpkit.sim.hardware"),
    *("dpkit.sim.clock", "dpkit.sim.timeline", "dpkit.units", "dpkit.tables"),
    "dpkit.least_squares",
)
# What notebooks can import and a page cannot, besides most of dpkit.
NOT_IN_PAGES = ("torch", "torchvision", "numpy", "matplotlib")


def sentence(error: BaseException) -> str:
    r"""Return what went wrong, after the line of the reader's code.

    Example:
        >>> try:
        ...     exec(compile("x = 1\nx / 0", FILE, "exec"))
        ... except ZeroDivisionError as error:
        ...     print(sentence(error))
        line 2: ZeroDivisionError: division by zero
    """
    if isinstance(error, SyntaxError):
        where = f"line {error.lineno}: " if error.filename == FILE else ""
        return f"{where}{type(error).__name__}: {error.msg}"
    calls = _calls(error)
    where = f"line {calls[-1][0]}: " if calls else ""
    if isinstance(error, ImportError) and (missing := _missing(error)):
        return f"{where}{missing}"
    return f"{where}{type(error).__name__}: {error}"


def _missing(error: ImportError) -> str:
    """Return what a page lacks, where that is why an import fails."""
    name = error.name or ""
    package = name.partition(".")[0]
    without = "the exercise can be solved without it"
    if package == "dpkit" and not name.startswith(IN_PAGES):
        return (
            "the page has dpkit.plans, dpkit.schedules and the hardware of "
            f"dpkit.sim, and no part of dpkit that needs PyTorch; {without}"
        )
    if package in NOT_IN_PAGES:
        known = "PyTorch" if package == "torch" else package
        notebook = f"in a notebook of the book you can import {package}"
        return f"{known} does not run in the page; {without}, and {notebook}"
    if package in sys.stdlib_module_names:
        return f"the page has Python's library without {name}; {without}"
    return ""


def trace(error: BaseException) -> str:
    """Return the traceback of an error, of the reader's code alone.

    It is empty where no line of that code was at work. The source of
    ``FILE`` must be known to ``linecache``.
    """
    if isinstance(error, SyntaxError) and error.filename == FILE:
        return "".join(traceback.format_exception_only(error))
    calls = _calls(error)
    if not calls:
        return ""
    head = "Traceback (most recent call last):\n"
    lines = [head, *_quoted(calls[: MOST_CALLS // 2])]
    if left := max(0, len(calls) - MOST_CALLS):
        lines.append(f"  … ({left:,} more calls)\n")
    lines += _quoted(calls[MOST_CALLS // 2 :][-MOST_CALLS // 2 :])
    return "".join([*lines, *traceback.format_exception_only(error)])


def _calls(error: BaseException) -> list[tuple[int, str]]:
    """Return line and function of each call in the reader's code."""
    # The library of a page tells no lines: extract_tb would stop there.
    return [
        (line, frame.f_code.co_name)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if frame.f_code.co_filename == FILE
    ]


def _quoted(calls: list[tuple[int, str]]) -> list[str]:
    """Return lines of a traceback for calls, with the code that calls."""
    steps = [traceback.FrameSummary(FILE, line, name) for line, name in calls]
    return traceback.StackSummary.from_list(steps).format()
