"""The listings of other frameworks, in the page."""

import ast
from pathlib import Path

from IPython.display import Markdown

from dpbook.common.show import shortened


def listing(path: str | Path, *names: str) -> Markdown:
    """Show functions, classes or constants of a file as they stand there.

    Docstrings are cut to their first line.

    Raises:
        ValueError: the file does not define a name.

    Example:
        >>> text = listing("book/elsewhere/jax_step.py", "pad").data
        >>> text.splitlines()[1]
        'def pad(array, k):'
    """
    text = Path(path).read_text("utf-8")
    found = {}
    for node in ast.parse(text).body:
        for name in _defined(node):
            found[name] = _lines(text, node)
    missing = [name for name in names if name not in found]
    if missing:
        raise ValueError(f"{path} does not define {', '.join(missing)}")
    parts = [shortened(found[name]) for name in names]
    return Markdown("```python\n" + "\n\n\n".join(parts) + "\n```")


def _defined(node: ast.stmt) -> list[str]:
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return [node.name]
    if isinstance(node, ast.Assign):
        return [ast.unparse(target) for target in node.targets]
    return []


def _lines(text: str, node: ast.stmt) -> str:
    """Return the lines of a statement, with its decorators."""
    decorators = getattr(node, "decorator_list", [])
    first = min([node.lineno, *(d.lineno for d in decorators)])
    return "\n".join(text.splitlines()[first - 1 : node.end_lineno])
