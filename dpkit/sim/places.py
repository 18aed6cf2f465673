"""The lines of the program that races and warnings name: "train.py:12"."""

import linecache
import os
import sys
import sysconfig
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import torch

OWN_FILES = str(Path(__file__).parents[1])  # those of this package

SourceLine = tuple[str, int]  # a file, and the number of a line


class SourcePlace(NamedTuple):
    """A line of the program, and the line of dpkit that it has led to.

    If it did not lead into dpkit, both are the same.
    """

    program: SourceLine
    within: SourceLine

    def described(self) -> str:
        """Return "train.py:12", or "train.py:12 (dpkit/streams.py:219)"."""
        line = _described(*self.program)
        if self.within != self.program:
            line += f" ({_described(*self.within)})"
        return line

    def code(self) -> str:
        """Return what stands in the line of the program."""
        return linecache.getline(*self.program).strip()


def here() -> SourcePlace:
    """Return the place of what runs now.

    Left out are PyTorch, what is installed in the same folder, Python's own
    library and the simulation. A package in that folder counts as a part of
    the program if its ``__init__`` says ``IS_PROGRAM = True``.
    """
    frame: FrameType | None = sys._getframe(1)
    within: SourceLine | None = None
    while frame is not None:
        kind = _kind_of(frame)
        if kind:
            line = frame.f_code.co_filename, frame.f_lineno
            within = within or line
            if kind == "program":
                return SourcePlace(line, within)
        frame = frame.f_back
    return SourcePlace(*[within or ("?", 0)] * 2)


_SIM = os.path.dirname(os.path.abspath(__file__))
_DPKIT = os.path.dirname(_SIM) + os.sep
# Folders of dpkit that run beneath a program, whatever line it is at.
_BENEATH = [_SIM + os.sep]
_NAMES = ("stdlib", "platstdlib", "purelib", "platlib")
#: Where the files of Python lie, those of PyTorch and all that is installed,
#: also in an environment that this one sees the packages of.
LIBRARIES = (
    *[sysconfig.get_path(name) + os.sep for name in _NAMES],
    *[path + os.sep for path in sys.path if path.endswith("-packages")],
    os.path.dirname(os.path.dirname(torch.__file__)) + os.sep,
    "<frozen ",
)


def runs_beneath(folder: str) -> None:
    """Leave out the files of a folder of dpkit, as those of the simulation.

    What runs a program enters its folder, when it is imported.
    """
    _BENEATH.append(folder + os.sep)
    _kind.cache_clear()


@cache
def _kind(file: str, package: str) -> str:
    """Return whose a file is: "program", "dpkit", or "" for all others."""
    if file.startswith(_DPKIT):
        return "" if file.startswith((*_BENEATH,)) else "dpkit"
    is_installed = file.startswith(LIBRARIES)
    says_so = getattr(sys.modules.get(package), "IS_PROGRAM", False)
    return "" if is_installed and not says_so else "program"


def is_program(frame: FrameType) -> bool:
    """Return whether a file or a cell of the program runs in a frame."""
    return _kind_of(frame) == "program"


def _kind_of(frame: FrameType) -> str:
    package = frame.f_globals.get("__name__", "").partition(".")[0]
    return _kind(frame.f_code.co_filename, package)


def _described(file: str, number: int) -> str:
    if file.startswith(_DPKIT):
        name = f"dpkit/{file.removeprefix(_DPKIT)}".replace(os.sep, "/")
    else:
        name = "a cell" if _is_cell(file) else os.path.basename(file)
    return f"{name}:{number}"


def _is_cell(file: str) -> bool:
    """Return whether IPython has made a file of a cell.

    The number of the cell is left out: it changes each time the cell is run.
    """
    shell = _shell()
    return bool(shell and shell.compile.format_code_name(file))


def in_notebook() -> bool:
    """Return whether the program is cells, whose outputs are kept."""
    return _shell() is not None


def _shell() -> Any:
    ipython = sys.modules.get("IPython")
    return ipython.get_ipython() if ipython else None
