"""The checks of the exercises.

An exercise in a chapter is a stub, the line ``check(stub)``, and a solution
that the page hides. The answer ``f`` is checked by the function ``check_f`` of
a chapter's ``dpkit/lab/<chapter>/check.py``. It runs the answer on inputs that
catch the usual mistakes, on simulated devices, and prints the verdict::

    allreduce_by_parts: not yet (8 elements on 2 devices: rank 0 is wrong …)
    allreduce_by_parts: solved
"""

from collections.abc import Callable
from functools import cache
from importlib import import_module, resources

from dpkit.lab.common.verdict import Answer, NotYet


@cache
def all_checks() -> dict[str, Callable[[Answer], None]]:
    """Return the check of each exercise, by the name of the answer."""
    found = {}
    for chapter in sorted(resources.files("dpkit.lab").iterdir(), key=str):
        if not (chapter / "check.py").is_file():
            continue
        module = import_module(f"dpkit.lab.{chapter.name}.check")
        for name, fn in vars(module).items():
            if name.startswith("check_") and fn.__module__ == module.__name__:
                found[name.removeprefix("check_")] = fn
    return found


def check(answer: Answer) -> None:
    """Print whether an answer solves its exercise, and if not, why.

    The answer is a function with the name that the exercise gives it.

    Raises:
        ValueError: If no exercise has this name.

    Example:
        >>> def accuracy_on_all(net, X, y, device_params, devices):
        ...     return 0.5
        >>> check(accuracy_on_all)  # doctest: +NORMALIZE_WHITESPACE
        accuracy_on_all: not yet (the accuracy is 5/7; devices: 1, returned:
        0.5)
    """
    why = failure(answer)
    verdict = "solved" if why is None else f"not yet ({why})"
    print(f"{answer.__name__}: {verdict}")


def failure(answer: Answer) -> str | None:
    """Return why ``answer`` does not solve its exercise; None if it does."""
    if not hasattr(answer, "__name__"):
        raise TypeError(f"check takes the function itself (given: {answer!r})")
    name = answer.__name__
    checks = all_checks()
    if name not in checks:
        raise ValueError(
            f"no exercise has this name (name: {name!r}, known: "
            f"{', '.join(checks)})"
        )
    try:
        checks[name](answer)
    except NotYet as error:
        return str(error)
    except Exception as error:
        return f"it raised {type(error).__name__}: {error}"
    return None
