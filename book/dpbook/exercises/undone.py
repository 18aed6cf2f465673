"""Undo what a run of a reader's code has set in modules.

Such code may set ``builtins.print`` or a function of a library, by mistake
or as an experiment. The next run must not meet that.
"""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any


@contextmanager
def undone() -> Iterator[None]:
    """Set back, at the end of a block, what it sets in modules and in sys.

    The names of each module that was there before are as they were. Modules
    that the block is the first to import are forgotten: the next import runs
    them again. The limit of recursion and the filters of warnings are as they
    were. What is changed inside of an object, such as an entry of a list,
    stays.

    Example:
        >>> import math
        >>> with undone():
        ...     math.pi = 3
        >>> math.pi
        3.141592653589793
    """
    modules = dict(sys.modules)
    found = [m for m in modules.values() if isinstance(m, ModuleType)]
    names = [(vars(module), dict(vars(module))) for module in found]
    limit = sys.getrecursionlimit()
    try:
        with warnings.catch_warnings():
            yield
    finally:
        for now, was in names:
            _set_back(now, was)
        _set_back(sys.modules, modules)
        sys.setrecursionlimit(limit)


def _set_back(now: dict[str, Any], was: dict[str, Any]) -> None:
    """Give a dict the entries that it had before."""
    # This calls no function of builtins: the reader's code may have set it.
    for name in [*now]:
        if name not in was:
            del now[name]
    now.update(was)
