"""Write the student's and the instructor's notebook of an assignment.

Both have the text of each exercise, its points, its hints if they are wanted,
and its stub. The instructor's has a solution below each stub.
"""

import re
from collections.abc import Collection, Sequence
from typing import Any

from assignment.chapter import Exercise
from assignment.known import wrong_answers
from plain_markdown import plain_markdown

Cell = dict[str, Any]
Notebook = dict[str, Any]
NO_CHECK = (
    "Its numbers are those of this sheet. It is checked when it is graded."
)
INTRODUCTION = """\
# Assignment: {title}

{count} exercises, {total} points. Write your answers into the functions below,
and keep their names. Your notebook is run from the top in a new process, and
then each function is checked. `dpkit` has to be installed.
{sheet}"""
SHEET = "\nThis is sheet {seed}. Other sheets have other numbers.\n"


def notebook_of(
    title: str,
    exercises: Sequence[Exercise],
    points: dict[str, int],
    *,
    metadata: dict[str, Any],
    solved: bool,
    seed: int | None = None,
    own_numbers: Collection[str] = (),
) -> Notebook:
    """Return the notebook that students fill in, or the instructor's.

    Args:
        title: The title of the chapter.
        exercises: The exercises in their order.
        points: What each is worth, by its name.
        metadata: Those of the chapter, which name the language.
        solved: True: it is the instructor's, and has solutions and known wrong
            answers.
        seed: The number of the sheet; None: the numbers are the book's.
        own_numbers: The exercises whose text has the numbers of this sheet, so
            that the book's check would ask for others.
    """
    introduction = INTRODUCTION.format(
        title=title,
        count=len(exercises),
        total=sum(points.values()),
        sheet="" if seed is None else SHEET.format(seed=seed),
    )
    imports = "from dpbook.common.checks import check"
    cells = [_text("introduction", introduction), _code("imports", imports)]
    for number, exercise in enumerate(exercises, start=1):
        worth = points[exercise.name]
        cells += _question(exercise, number, worth)
        if solved:
            cells.append(_code(f"{exercise.name}-solution", exercise.solution))
            if exercise.name not in own_numbers:
                wrong = wrong_ones(exercise.name)
                cells.append(_text(f"{exercise.name}-wrong", wrong))
        if exercise.name in own_numbers:
            cells.append(_text(f"{exercise.name}-check", NO_CHECK))
        else:
            line = f"check({exercise.name})"
            cells.append(_code(f"{exercise.name}-check", line, ["check"]))
    return {
        "cells": cells,
        "metadata": metadata,
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def wrong_ones(name: str) -> str:
    """Return a text with the known wrong answers to an exercise.

    Example:
        >>> from assignment.sheet import wrong_ones
        >>> wrong_ones("cut_buckets").splitlines()[2]
        '*the last one ends at 13.2 ms …*'
    """
    parts = [
        f"*{why.strip()} …*\n\n```python\n{code}\n```"
        for why, code in wrong_answers().get(name, [])
    ]
    head = "Known wrong answers, and what the check says of them:"
    return "\n\n".join([head, *parts])


def _question(exercise: Exercise, number: int, worth: int) -> list[Cell]:
    """Return the cells of an exercise: its text, what it needs, its stub."""
    name = exercise.name
    unit = "point" if worth == 1 else "points"
    heading = f"## {number}. {exercise.title} ({worth} {unit})"
    parts = (heading, exercise.text, exercise.hints)
    text = "\n\n".join(part for part in parts if part)
    cells = [_text(f"{name}-text", plain_markdown(text, in_words))]
    if exercise.setup:
        cells.append(_code(f"{name}-setup", exercise.setup))
    cells.append(_code(f"{name}-stub", exercise.stub, tags=["stub"]))
    return cells


def in_words(role: str) -> str:
    """Return what stands for a reference to the book in an assignment.

    Example:
        >>> from assignment.sheet import in_words
        >>> in_words("{eq}`eq-np-gpipe`")
        'the formula of the chapter'
        >>> in_words("{doc}`overlap`")
        '*overlap*'
    """
    match = re.fullmatch(r"\{(.+)\}`(.+)`", role)
    if match is None:
        raise ValueError(f"this is no role (given: {role!r})")
    kind, content = match.groups()
    if kind == "eq":
        return "the formula of the chapter"
    return f"*{content.split('<')[0].strip()}*"


def _text(name: str, source: str) -> Cell:
    return {
        "cell_type": "markdown",
        "id": name.replace("_", "-"),
        "metadata": {},
        "source": source.strip().splitlines(keepends=True),
    }


def _code(name: str, source: str, tags: Sequence[str] = ()) -> Cell:
    return {
        "cell_type": "code",
        "execution_count": None,
        "id": name.replace("_", "-"),
        "metadata": {"tags": list(tags)} if tags else {},
        "outputs": [],
        "source": source.splitlines(keepends=True),
    }
