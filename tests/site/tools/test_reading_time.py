"""The minutes of a chapter count what a reader reads and does."""

import json

import pytest
import reading_time
from reading_time import Minutes, minutes_of


def prose(text):
    return {"cell_type": "markdown", "source": text}


def code(source, **data):
    outputs = [{"data": data}] if data else []
    return {"cell_type": "code", "source": source, "outputs": outputs}


@pytest.mark.parametrize(
    "cell",
    [
        prose("word " * 1750),
        code("x = 1\n\n" * 100),
        code("", **{"text/html": ["<table>", "<tr><td>1</td></tr>" * 150]}),
        code("", **{"text/markdown": "```python\n" + "x = 1\n" * 98 + "```"}),
    ],
    ids=["words", "lines", "rows", "a listing"],
)
def test_what_takes_ten_minutes(cell):
    assert minutes_of([cell]) == Minutes(10, 0, "")
    assert minutes_of([cell, cell]) == Minutes(20, 0, "")


def test_figures_take_half_a_minute():
    figures = [code("", **{"image/svg+xml": "<svg/>"})] * 10
    figures += [code("", **{"text/html": "<svg></svg>"})] * 10
    assert minutes_of(figures) == Minutes(10, 0, "")


def test_doing_is_counted_apart():
    box = ":::{admonition} Predict\n:class: prediction\nHow long?\n:::\n"
    exercise = "```{exercise-start} A ring\n:label: ex-ring\n```\n"
    found = minutes_of([prose(box), prose(exercise), prose(exercise)])
    assert found == Minutes(5, 25, "predictions and exercises")
    assert minutes_of([prose(box)]).in_box() == (
        "5 minutes to read, and 5 for its predictions"
    )
    assert minutes_of([prose("A word.")]).on_card() == (
        "*takes* 5 minutes to read"
    )


def test_what_the_box_says_does_not_count():
    text = "**It takes** about 5 minutes to read, and 40 for its exercises."
    assert minutes_of([prose(text + " word" * 1305)]).reading == 5
    assert minutes_of([prose(text + " word" * 1312)]).reading == 10


def test_a_box_without_minutes_is_named(tmp_path):
    path = tmp_path / "page.ipynb"
    path.write_text(json.dumps({"cells": [{"source": ["**It takes** long"]}]}))
    with pytest.raises(ValueError, match=r"page\.ipynb: 0"):
        reading_time.rewrite(path, reading_time.BOX, "5 minutes to read")
