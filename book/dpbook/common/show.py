"""Listings: the source of what runs, in the page."""

import ast
import inspect
import textwrap
from collections.abc import Callable
from types import ModuleType
from typing import Any

from IPython.display import Markdown


def show(*functions: Callable[..., Any] | ModuleType) -> Markdown:
    """Show the source of functions, classes or files as it runs.

    Docstrings are cut to their first line. The result is what a notebook
    displays when this call is the last line of a cell.

    Example:
        >>> from dpbook.common.loop import train_epoch
        >>> print(show(train_epoch).data.splitlines()[1])
        def train_epoch(
    """
    listings = [source(function) for function in functions]
    return Markdown("```python\n" + "\n\n\n".join(listings) + "\n```")


def source(function: Callable[..., Any] | ModuleType) -> str:
    """Return the source with docstrings cut to their first line."""
    return shortened(textwrap.dedent(inspect.getsource(function)))


def shortened(text: str) -> str:
    """Return source with docstrings cut to their first line."""
    lines = text.splitlines()
    documented = [
        node.body[0]
        for node in ast.walk(ast.parse(text))
        if isinstance(node, (ast.FunctionDef, ast.ClassDef))
        and ast.get_docstring(node)
    ]
    # From the last to the first, so that line numbers stay true.
    for docstring in sorted(documented, key=lambda d: -d.lineno):
        first = docstring.lineno - 1
        last = docstring.end_lineno
        if last and last - first > 1:
            lines[first:last] = [lines[first].rstrip() + '"""']
    return "\n".join(lines)
