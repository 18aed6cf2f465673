"""What a check of an exercise says: solved, or not yet and why.

A check goes through cases. It knows what to expect in each, and requires it
from the answer; ``case`` are the words that name the inputs.
"""

import re
from collections.abc import Callable, Iterable
from math import isclose
from types import ModuleType
from typing import Any, SupportsFloat

Answer = Callable[..., Any]
ONE_OF_MANY = re.compile(
    r"(?<![\d.,])1 (rank|device|stage|row|group|value|example|element|position"
    r"|loss(?=es)|micro-batch(?=es))e?s\b"
)


class NotYet(Exception):  # noqa: N818
    """An answer does not solve its exercise; the message is the reason.

    Example:
        >>> print(NotYet("1 ranks, 11 stages: it returned 0"))
        1 rank, 11 stages: it returned 0
    """

    def __init__(self, why: str) -> None:
        super().__init__(ONE_OF_MANY.sub(r"1 \1", why))


def require(condition: bool, why: str) -> None:
    """Raise NotYet with ``why`` unless the condition holds."""
    if not condition:
        raise NotYet(why)


def require_at_most(
    found: float, *, most: float, unit: str, start: str
) -> None:
    """Raise NotYet if more was found than is allowed.

    Args:
        found: What the answer came to.
        most: What is allowed.
        unit: That of both, such as "ms".
        start: What the message begins with: the case, and what was found.
    """
    why = f"{start} {found:.0f} {unit}, where {most} are allowed"
    require(found <= most, why)


def require_same(
    found: object,
    expected: object,
    case: str,
    form: str = "",
    near: float = 1e-6,
) -> None:
    """Raise NotYet unless what was found is what was expected.

    Args:
        found: What the answer returned.
        expected: What is right.
        case: Words that name the inputs, for the message.
        form: How what was expected is formatted in the message.
        near: The share by which floats may differ.
    """
    why = f"{case}: it returned {found!r}, expected {expected:{form}}"
    require(same(found, expected, near), why)


def require_reference(
    answer: Answer,
    reference: Answer,
    cases: Iterable[tuple[Any, ...]],
    case_format: str,
    form: str = "",
    near: float = 1e-6,
) -> None:
    """Raise NotYet unless an answer returns what a reference returns.

    Args:
        answer: The function that is checked.
        reference: A function of the same arguments that is right.
        cases: Tuples of arguments; both functions are called with each.
        case_format: A format of these arguments that names the case, such
            as ``"{0} devices, tree={1}"``.
        form: How the value of the reference is formatted in the message.
        near: The share by which floats may differ.
    """
    for case in cases:
        found = answer(*case)
        expected = reference(*case)
        require_same(
            found, expected, case_format.format(*case), form=form, near=near
        )


def same(found: Any, expected: Any, near: float = 1e-6) -> bool:
    """Return whether two results are equal; floats may differ a little.

    They are numbers, or sequences of them. ``near`` is the share by which
    floats may differ.
    """
    if isinstance(expected, (list, tuple)):
        return (
            isinstance(found, (list, tuple))
            and len(found) == len(expected)
            and all(same(a, b, near) for a, b in zip(found, expected))
        )
    if isinstance(expected, float) and isinstance(found, SupportsFloat):
        return isclose(found, expected, rel_tol=near, abs_tol=1e-12)
    return bool(found == expected)


def checks_in(module: ModuleType) -> dict[str, Callable[[Answer], None]]:
    """Return the checks that a module defines, by the exercise's name."""
    return {
        name.removeprefix("check_"): check
        for name, check in vars(module).items()
        if name.startswith("check_") and check.__module__ == module.__name__
    }


def why_not(check: Callable[[Answer], None], answer: Answer) -> str | None:
    """Return why an answer does not pass a check; None if it does.

    Example:
        >>> why_not(lambda answer: require(answer() == 4, "no"), lambda: 5)
        'no'
    """
    try:
        check(answer)
    except NotYet as error:
        return str(error)
    except Exception as error:
        return f"it raised {type(error).__name__}: {error}"
    return None
