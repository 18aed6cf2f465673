"""Lists that each rank shuffles by itself, and then takes its part of.

    rank 0    2 0 3 1     takes 2 and 3     order[0::2]
    rank 1    3 2 1 0     takes 2 and 0     order[1::2]

Example 2 is taken twice, and example 1 never. That it takes a part is read in
the script: a slice of the shuffled list by a step, such as ``[rank::size]``.
"""

import ast
import random
import sys
import zlib
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from dpkit.runs.torchrun.watchers import Watcher
from dpkit.sim import places
from dpkit.sim.changes import replaced

_MOST_KEPT = 100_000  # elements of a list


class Shuffled(NamedTuple):
    """A list that a rank has shuffled, and takes a part of."""

    name: str  # of the variable
    line: str  # of the script
    elements: "array[int]"  # a number for each, in the new order


class ShuffledParts(Watcher):
    """Parts of a list that is in another order on each rank."""

    looks_for = "parts of what ranks shuffle differently"
    needs_ranks = True

    def __init__(self, rank: int) -> None:
        super().__init__(rank)
        self._shuffled: dict[str, Shuffled] = {}  # by the line, the first

    def begin(self, stack: ExitStack) -> None:
        """Look at what Python and NumPy shuffle for the program."""
        numpy: Any = sys.modules.get("numpy")
        changes = [(random, "shuffle")]
        if numpy is not None:
            changes.append((numpy.random, "shuffle"))
            changes.append((numpy.random, "permutation"))
        for owner, name in changes:
            new = self._watched(getattr(owner, name))
            stack.callback(replaced(owner, name, new).apply())

    def _watched(self, shuffle: Any) -> Any:
        def run(*args: Any, **kwargs: Any) -> Any:
            made = shuffle(*args, **kwargs)
            frame = sys._getframe(1)
            if places.is_program(frame):
                given = next(iter((*args, *kwargs.values())))
                self._keep(given if made is None else made, frame)
            return made

        return run

    def _keep(self, order: Any, frame: FrameType) -> None:
        line = places.here().described()
        name = parted(frame.f_code.co_filename, frame.f_lineno)
        if name and line not in self._shuffled and len(order) <= _MOST_KEPT:
            numbers = array("Q", (zlib.crc32(repr(x).encode()) for x in order))
            self._shuffled[line] = Shuffled(name, line, numbers)

    def for_comparison(self) -> dict[str, Shuffled]:
        """Return what was shuffled, by the line."""
        return self._shuffled

    @classmethod
    def compare(cls, kept: Mapping[int, dict[str, Shuffled]]) -> list[str]:
        """Return a sentence for each list of which ranks take wrong parts."""
        lines = sorted(set.intersection(*map(set, kept.values())))
        orders = [[one[line] for one in kept.values()] for line in lines]
        return [fault for order in orders if (fault := _wrong_parts(order))]


def _wrong_parts(orders: Sequence[Shuffled]) -> str:
    """Return what is wrong if rank r takes ``[r::size]`` of its order."""
    first = orders[0]
    if len({tuple(sorted(one.elements)) for one in orders}) > 1:
        return ""  # each rank shuffles something else
    size = len(orders)
    taken = Counter(
        x for r, one in enumerate(orders) for x in set(one.elements[r::size])
    )
    several = sum(count > 1 for count in taken.values())
    never = len(set(first.elements) - set(taken))
    if not never:
        return ""
    return (
        f"each rank shuffles {first.name} in another order, and takes its "
        f"part of it ({first.line}): of {len(first.elements)}, {several} are "
        f"taken by several ranks and {never} by none; the same seed on all "
        "ranks gives the same order"
    )


@cache
def parted(file: str, line: int) -> str:
    """Return which list a line shuffles, if its function takes parts of it.

    Args:
        file: The file of the script.
        line: The line of the call.
    """
    with suppress(OSError, SyntaxError, UnicodeDecodeError):
        tree = ast.parse(Path(file).read_text())
        functions = [
            node for node in ast.walk(tree) if isinstance(node, _FUNCTIONS)
        ]
        around = [node for node in functions if _has(node, line)]
        scope = around[-1] if around else tree  # the innermost comes last
        nodes = list(ast.walk(scope))
        names = {
            name
            for node in nodes
            if isinstance(node, ast.Expr | ast.Assign) and _has(node, line)
            for name in _shuffled_by(node)
        }
        parts = names.intersection(map(_sliced, nodes))
        return min(parts, default="")
    return ""


_FUNCTIONS = ast.FunctionDef, ast.AsyncFunctionDef


def _has(node: Any, line: int) -> bool:
    """Return whether a line belongs to a node of a script."""
    return bool(node.lineno <= line <= (node.end_lineno or node.lineno))


def _shuffled_by(node: ast.Expr | ast.Assign) -> list[str]:
    """Return the names that ``shuffle(x)`` or ``x = …(n)`` changes."""
    if isinstance(node, ast.Assign):
        return [ast.unparse(target) for target in node.targets]
    call = node.value
    given = call.args[:1] if isinstance(call, ast.Call) else []
    return list(map(ast.unparse, given))


def _sliced(node: ast.AST) -> str:
    """Return what ``x[rank::size]`` is taken of; "" for another slice."""
    if not isinstance(node, ast.Subscript):
        return ""
    part = node.slice
    if not isinstance(part, ast.Slice):
        return ""
    is_part = isinstance(part.lower, _NAMED) and isinstance(part.step, _NAMED)
    return ast.unparse(node.value) if is_part else ""


_NAMED = ast.Name, ast.Attribute, ast.Call
