"""The lines of the program that a race names: "train.py:12", "a cell:3"."""

import linecache
import os
import sys
import sysconfig
from functools import cache
from types import FrameType
from typing import NamedTuple

import torch

SourceLine = tuple[str, int]  # a file, and the number of a line


class SourcePlace(NamedTuple):
    """A line of the program, and the line of dpkit that it has led to.

    If it did not lead into dpkit, both are the same.
    """

    program: SourceLine
    within: SourceLine

    def told(self) -> str:
        """Return "train.py:12", or "train.py:12 (dpkit/streams.py:219)"."""
        line = _told(*self.program)
        if self.within != self.program:
            line += f" ({_told(*self.within)})"
        return line

    def code(self) -> str:
        """Return what stands in the line of the program."""
        return linecache.getline(*self.program).strip()


def here() -> SourcePlace:
    """Return the place of what runs now.

    Left out are PyTorch, what is installed beside it, Python's own library
    and the simulation. What chapters import counts as program.
    """
    frame: FrameType | None = sys._getframe(1)
    within: SourceLine | None = None
    while frame is not None:
        kind = _kind(frame.f_code.co_filename)
        if kind:
            line = frame.f_code.co_filename, frame.f_lineno
            within = within or line
            if kind == "program":
                return SourcePlace(line, within)
        frame = frame.f_back
    return SourcePlace(*[within or ("?", 0)] * 2)


_ROOMS = os.path.dirname(os.path.abspath(__file__)), "..", ".."
_DPKIT = os.path.normpath(os.path.join(*_ROOMS)) + os.sep
_NAMES = ("stdlib", "platstdlib", "purelib", "platlib")
_LIBRARIES = (
    *[sysconfig.get_path(name) + os.sep for name in _NAMES],
    os.path.dirname(os.path.dirname(torch.__file__)) + os.sep,
    "<frozen ",
)


@cache
def _kind(file: str) -> str:
    """Return whose a file is: "program", "dpkit", or "" for all others."""
    if file.startswith(_DPKIT):
        room = file.removeprefix(_DPKIT).split(os.sep)[0]
        return {"lab": "program", "sim": ""}.get(room, "dpkit")
    return "" if file.startswith(_LIBRARIES) else "program"


def _told(file: str, number: int) -> str:
    if file.startswith(_DPKIT):
        name = f"dpkit/{file.removeprefix(_DPKIT)}".replace(os.sep, "/")
    else:
        name = "a cell" if _is_cell(file) else os.path.basename(file)
    return f"{name}:{number}"


def _is_cell(file: str) -> bool:
    """Return whether IPython has made a file of a cell.

    The number of the cell is not told: it changes each time the cell is run.
    """
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return bool(shell and shell.compile.format_code_name(file))
