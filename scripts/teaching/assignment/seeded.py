"""Give an exercise the numbers of a sheet, and the key that follows."""

import re
from collections.abc import Mapping
from pprint import pformat

from assignment.chapter import Exercise

from dpbook.assignment.sheets import ASKED, asked


def with_numbers(exercise: Exercise, seed: int | None) -> Exercise:
    """Return an exercise as a sheet asks for it.

    The hints of the book tell of the numbers of the book, and are left out
    where others are asked for. The solution is then one of the computed keys.

    Args:
        exercise: The exercise of the book.
        seed: The number of the sheet; None: it is that of the book.
    """
    if seed is None or exercise.name not in ASKED:
        return exercise
    told = asked(exercise.name, seed)
    key = pformat(told.keys[0], width=70).replace("\n", "\n    ")
    return exercise._replace(
        text=replaced(exercise.text, told.phrases),
        hints="",
        solution=f"def {exercise.name}():\n    return {key}",
    )


def replaced(text: str, phrases: Mapping[str, str]) -> str:
    r"""Return a text with other phrases, wherever its lines end.

    Args:
        text: The text of an exercise.
        phrases: What is replaced, and by what. The lines of a chart are
            indented by four.

    Raises:
        ValueError: If a phrase does not stand in the text exactly once.

    Example:
        >>> from assignment.seeded import replaced
        >>> replaced("It takes 2\nms.", {"takes 2 ms": "takes 3 ms"})
        'It takes 3 ms.'
    """
    patterns = {
        r"\s+".join(map(re.escape, old.split())): new.replace("\n", "\n    ")
        for old, new in phrases.items()
    }
    for pattern in patterns:
        count = len(re.findall(pattern, text))
        if count != 1:
            raise ValueError(f"not once in the text ({count}: {pattern})")
    news = list(patterns.values())
    any_of = "|".join(f"({pattern})" for pattern in patterns)
    return re.sub(any_of, lambda found: news[found.lastindex - 1], text)
