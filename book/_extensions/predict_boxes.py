"""Predict boxes: what each asks, and where its answer stands.

A box is an admonition of the class `prediction` in a notebook. A comment at
its end tells what the reader is to put down, and which cells answer it. A
reader of the notebook does not see it:

    <!-- predict
    number: computing, s | computing: … s
    if 0.0098: This is the time of one product.
    choice: what a clock shows | 1 | `run` returns a thousand times sooner
    if 2: The clock would show this if `run` waited for the device.
    fold: devices-007 to devices-011
    -->

`number` has what is asked and its unit, then words of an answering cell; `…`
stands for the number, and `*` for any word. A line `if` below it has a wrong
number that a usual error gives, and names the error; a reader whose number is
near the wrong one is shown it. `choice` has what is asked, which
item of the numbered list in the box is right, and words that say so. Each
wrong item has a line `if`, shown to a reader who chose that item: what would
have to be true for it. `fold` has the first and the last answering cell;
there may be several. So no answer is written twice: the number is taken from
the cells, and words that are not there are a problem.
"""

import re
from collections import Counter
from typing import Any, NamedTuple

BOX = re.compile(
    r"(?ms)^:::\{admonition\}[^\n]*\n:class: prediction\n(.*?)^:::$"
)
COMMENT = re.compile(r"(?s)<!-- predict\n(.*?)-->\n?")
LEAST_NEAR = 0.02  # as in predict.js
NUMBER = r"[-+]?\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]?\d+)?"


class Asked(NamedTuple):
    """What a reader is to put down; `found` is a number, or which choice."""

    label: str
    unit: str
    found: str


class Slip(NamedTuple):
    """A wrong number that a usual error gives, and what the error is.

    `place` is that of the number in the box, from 0 on.
    """

    place: int
    value: str
    sentence: str


class Box(NamedTuple):
    """A box: its cell, the runs of cells that answer it, what is wrong.

    `ifs` has a sentence for each wrong item of the choice, by its number.
    """

    cell: str
    numbers: list[Asked]
    choice: Asked | None
    ifs: dict[str, str]
    slips: list[Slip]
    folds: list[list[str]]
    problems: list[str]


def text_of(cell: dict[str, Any]) -> str:
    """Return what a cell says: its prose, or what it printed."""
    if cell["cell_type"] == "markdown":
        return BOX.sub("", "".join(cell["source"]))
    said = []
    for output in cell.get("outputs", ()):
        data = output.get("data", {})
        said.append("".join(output.get("text") or data.get("text/plain", "")))
    return "\n".join(said)


def found_numbers(pattern: str, text: str) -> set[str]:
    """Return the numbers that stand where a pattern has `…`."""
    signs = {"…": f"({NUMBER})", "*": r"\S+", " ": r"\s+"}
    words = re.split(r"(…|\*| )", pattern.strip())
    wanted = "".join(signs.get(word) or re.escape(word) for word in words)
    return set(re.findall(rf"(?<![\w.-]){wanted}(?![\w.]*\w)", text))


def is_near(number: str, written: str) -> bool:
    """Tell whether a number counts as the one that is written.

    It does if it rounds to that one, with as many decimals as are written, or
    differs from it by a fiftieth at most.
    """
    mantissa, _, exponent = written.replace(",", "").partition("e")
    places = len(mantissa.partition(".")[2])
    half = 0.5 * 10 ** (int(exponent or 0) - places) if places else 0.0
    value = float(f"{mantissa}e{exponent or 0}")
    apart = abs(float(number.replace(",", "")) - value)
    most = max(half, LEAST_NEAR * abs(value))
    return apart <= 1.001 * most  # floats are not exact


def folded(line: str, cells: dict[str, Any], box: str) -> list[str]:
    """Return the ids of the cells from the first one to the last one."""
    first, _, last = line.partition(" to ")
    names = list(cells)
    if not names.index(box) < names.index(first):
        raise ValueError(f"the box does not stand before its fold ({first})")
    kept = names[names.index(first) : names.index(last or first) + 1]
    if not kept:
        raise ValueError(f"the fold has no cells ({line})")
    return kept


def number_of(line: str, text: str) -> Asked:
    """Read a line `number`, and take the number from the text."""
    what, pattern = (part.strip() for part in line.split("|", 1))
    label, _, unit = (part.strip() for part in what.rpartition(","))
    if not label:
        raise ValueError(
            f"the number has no name ({what}): where it has no unit, its "
            "name ends with a comma"
        )
    found = found_numbers(pattern, text)
    if len(found) != 1:
        raise ValueError(f"not one number in the fold ({pattern}: {found})")
    return Asked(label, unit, found.pop())


def choice_of(line: str, text: str, items: int) -> Asked:
    """Read a line `choice`, and look for its words in the text."""
    label, right, quote = (part.strip() for part in line.split("|", 2))
    if " ".join(quote.split()) not in " ".join(text.split()):
        raise ValueError(f"these words are not in the fold ({quote})")
    if not 1 <= int(right) <= items:
        raise ValueError(f"no such item (right: {right}, items: {items})")
    return Asked(label, "", right)


def check_slips(box: Box) -> None:
    """Raise ValueError if a wrong number is near the right one, or another."""
    taken = [(i, asked.found) for i, asked in enumerate(box.numbers)]
    for place, value, _ in box.slips:
        if not re.fullmatch(NUMBER, value):
            raise ValueError(f"no number in a line `if` ({value})")
        for other in (known for i, known in taken if i == place):
            if is_near(value, other) or is_near(other, value):
                raise ValueError(
                    "the wrong number of a line `if` counts as another answer "
                    f"(wrong: {value}, other: {other})"
                )
        taken.append((place, value))


def check_ifs(box: Box, items: int) -> None:
    """Raise ValueError unless each wrong item has a sentence, and no other."""
    right = box.choice and box.choice.found
    wrong = {str(i + 1) for i in range(items)} - {right} if right else set()
    for number in sorted(wrong - {*box.ifs}):
        raise ValueError(f"no line `if` for a wrong item (item: {number})")
    for number in sorted({*box.ifs} - wrong):
        raise ValueError(f"a line `if` for no wrong item (item: {number})")


def read_box(name: str, source: str, cells: dict[str, Any]) -> Box:
    """Read the box of a cell, with what is wrong with it."""
    box = Box(name, [], None, {}, [], [], [])
    comment = COMMENT.search(source)
    if comment is None:
        box.problems.append("the box has no comment `predict`")
        return box
    lines = [line.partition(": ")[::2] for line in comment[1].splitlines()]
    items = len(re.findall(r"(?m)^\d\. ", source))
    try:
        box.folds.extend(
            folded(rest, cells, name) for key, rest in lines if key == "fold"
        )
        text = "\n".join(text_of(cells[c]) for fold in box.folds for c in fold)
        above = ""
        for key, rest in lines:
            if key == "number":
                box.numbers.append(number_of(rest, text))
            elif key == "choice":
                box = box._replace(choice=choice_of(rest, text, items))
            elif key.startswith("if ") and above == "number":
                box.slips.append(Slip(len(box.numbers) - 1, key[3:], rest))
            elif key.startswith("if ") and key[3:] not in box.ifs:
                box.ifs[key[3:]] = rest
            elif key != "fold":
                raise ValueError(f"no such line ({key})")
            above = above if key.startswith("if ") else key
        if not box.numbers and box.choice is None:
            raise ValueError("the box asks for nothing")
        check_ifs(box, items)
        check_slips(box)
    except ValueError as error:
        box.problems.append(str(error))
    return box


def boxes(notebook: dict[str, Any]) -> list[Box]:
    """Return the boxes of a notebook, in their order."""
    cells = {cell["id"]: cell for cell in notebook["cells"]}
    found = []
    for name, cell in cells.items():
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            found += [
                read_box(name, m[1], cells) for m in BOX.finditer(source)
            ]
    used = Counter(c for box in found for fold in box.folds for c in fold)
    for box in found:
        if any(used[cell] > 1 for fold in box.folds for cell in fold):
            box.problems.append("it folds cells that are folded already")
    return found
