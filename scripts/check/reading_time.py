"""Compute how long each chapter takes, and write that into the book.

Usage: reading_time.py

The minutes stand in the box at the top of a chapter and on its card on the
front page. Reading counts what a reader sees without unfolding anything:
words, lines of code, rows of tables and figures. Doing counts the predictions
and the exercises. Both are rounded to five minutes. ``book/how-to.md`` says
where the rates come from, and that the reader may have others.
"""

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import words

ROOT = Path(__file__).parent.parent.parent

WORDS_A_MINUTE = 175
LINES_A_MINUTE = 10  # of code, in cells and in listings of functions
ROWS_A_MINUTE = 15
MINUTES_A_FIGURE = 0.5
MINUTES_A_PREDICTION = 3
MINUTES_AN_EXERCISE = 10

PREDICTION = re.compile(r"(?m)^:class: prediction$")
EXERCISE = re.compile(r"\{exercise(-start)?\}")
BOX = re.compile(
    r"(?<=\*\*It takes\*\* about )\d+ minutes to read(, and \d+ for its"
    r" [a-z]+( and [a-z]+)?)?(?=\.)"
)


class Minutes(NamedTuple):
    """The minutes of a chapter, and what there is to do in it."""

    reading: int
    doing: int
    to_do: str  #: such as "predictions and exercises"

    def in_box(self) -> str:
        """Return what the chapter says after "It takes about"."""
        text = f"{self.reading} minutes to read"
        if self.doing:
            text += f", and {self.doing} for its {self.to_do}"
        return text

    def on_card(self) -> str:
        """Return what the card on the front page says."""
        text = f"*takes* {self.reading} minutes to read"
        return f"{text}, {self.doing} to do" if self.doing else text


def minutes_of(cells: list[dict[str, Any]]) -> Minutes:
    """Return the minutes of a chapter, whatever its box says of them.

    Args:
        cells: What a reader sees without unfolding (``words.on_the_page``).
    """
    texts = [c["source"] for c in cells if c["cell_type"] == "markdown"]
    prose = [BOX.sub("", text) for text in texts]
    code = [c for c in cells if c["cell_type"] == "code"]
    reading = sum(words.num_words(text) for text in prose) / WORDS_A_MINUTE
    reading += sum(reading_of_cell(cell) for cell in code)
    predictions = sum(len(PREDICTION.findall(text)) for text in prose)
    exercises = sum(len(EXERCISE.findall(text)) for text in prose)
    doing = MINUTES_A_PREDICTION * predictions
    doing += MINUTES_AN_EXERCISE * exercises
    there_are = {"predictions": predictions, "exercises": exercises}
    to_do = " and ".join(name for name, number in there_are.items() if number)
    return Minutes(rounded(reading), rounded(doing), to_do)


def rounded(minutes: float) -> int:
    """Return minutes in steps of five; what is not nothing has five."""
    return 5 * max(round(minutes / 5), 1) if minutes else 0


def reading_of_cell(cell: dict[str, Any]) -> float:
    """Return the minutes to read a cell of code and what it shows."""
    lines = num_lines(cell["source"])
    rows = figures = 0
    for output in cell["outputs"]:
        data = output.get("data", {})
        listing = "".join(data.get("text/markdown", ""))
        if listing.startswith("```python"):
            lines += num_lines(listing)
        html = "".join(data.get("text/html", ""))
        rows += html.count("<tr")
        figures += "<svg" in html or any("image/" in kind for kind in data)
    return (
        lines / LINES_A_MINUTE
        + rows / ROWS_A_MINUTE
        + figures * MINUTES_A_FIGURE
    )


def num_lines(code: str) -> int:
    """Return the number of lines that are not empty."""
    return sum(bool(line.strip()) for line in code.splitlines())


def card_of(name: str) -> re.Pattern[str]:
    """Return what finds the minutes on the card of a chapter."""
    return re.compile(
        rf"(?s)(?<=\*\*\{{doc\}}`{name}`\*\*)((?:(?!:::).)*)\*takes\*[^\n]*"
    )


def rewrite(path: Path, pattern: re.Pattern[str], text: str) -> None:
    """Put a text in the one place of a notebook where a pattern fits.

    Raises:
        ValueError: There is no such place, or more than one.
    """
    notebook = json.loads(path.read_text("utf-8"))
    places = 0
    for cell in notebook["cells"]:
        source, found = pattern.subn(text, "".join(cell["source"]))
        cell["source"] = source.splitlines(keepends=True)
        places += found
    if places != 1:
        raise ValueError(
            f"not one place for the minutes (in {path.name}: {places})"
        )
    written = json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
    path.write_text(written, "utf-8")


def write(root: Path, chapter: str) -> Minutes:
    """Write the minutes of a chapter into its box and on its card.

    Args:
        root: The folder that holds ``book``.
        chapter: The chapter's notebook, such as ``book/devices.ipynb``.

    Raises:
        ValueError: A box or a card has no place for them.
    """
    minutes = minutes_of([*words.on_the_page(root, chapter)])
    rewrite(root / chapter, BOX, minutes.in_box())
    card = card_of(Path(chapter).stem)
    index = root / "book" / "index.ipynb"
    rewrite(index, card, rf"\1{minutes.on_card()}")
    return minutes


def main(root: Path = ROOT) -> None:
    """Write the minutes of all chapters, and print them."""
    for chapter in words.chapters(root):
        print(f"{Path(chapter).stem}: {write(root, chapter).in_box()}")


if __name__ == "__main__":
    main()
