"""Each Predict box of the pages has its answer in the cells that it folds."""

import copy
import gzip
import json

import predict
import predict_boxes
import pytest
from predict_boxes import Asked, Slip, boxes, found_numbers, is_near

from tests.repository import ROOT

BOOK = ROOT / "book"
NOTEBOOKS = {
    path.stem: json.loads(path.read_text(encoding="utf-8"))
    for path in sorted(BOOK.glob("*.ipynb"))
}
BOX = """:::{admonition} Predict
:class: prediction
How long does it take, and who waits?

1. Python
2. the device

<!-- predict
number: a product, ms | one product: … ms
if 2,049: Two products would take so long.
if 8.2e3: A byte has 8 bits.
choice: who waits | 1 | Python waits
if 2: The device would wait: if `launch` were slow.
fold: two to three
-->
:::"""


def markdown(name, source):
    return {"id": name, "cell_type": "markdown", "source": source}


def notebook(box=BOX, printed="one product: 1,024.5 ms\n"):
    output = {"output_type": "stream", "text": [printed]}
    code = {
        "id": "two",
        "cell_type": "code",
        "source": "",
        "outputs": [output],
    }
    last = markdown("three", ["So *it* is\n", "Python waits.\n"])
    return {"cells": [markdown("one", box), code, last]}


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_the_cells_that_a_box_folds_have_its_answer(name):
    found = boxes(NOTEBOOKS[name])
    problems = {box.cell: box.problems for box in found if box.problems}
    assert problems == {}
    # Each cell has one box at most, and no box is written in another form.
    cells = ["".join(cell["source"]) for cell in NOTEBOOKS[name]["cells"]]
    assert len({box.cell for box in found}) == len(found)
    assert sum(c.count(":class: prediction") for c in cells) == len(found)


def test_there_are_boxes():
    assert sum(len(boxes(notebook)) for notebook in NOTEBOOKS.values()) >= 65


def test_an_answer_that_is_printed_no_more_is_found():
    cells = copy.deepcopy(NOTEBOOKS["sharding"])["cells"]
    (cell,) = (c for c in cells if c["id"] == "sharding-027")
    (output,) = cell["outputs"]
    output["text"] = ["one after the other: some ms\n"]
    found = boxes({"cells": cells})
    (broken,) = (box for box in found if box.problems)
    assert broken.cell == "sharding-026-ask"
    assert "one after the other: … ms" in broken.problems[0]


def test_a_box_is_read():
    (box,) = boxes(notebook())
    assert box.numbers == [Asked("a product", "ms", "1,024.5")]
    assert box.choice == Asked("who waits", "", "1")
    assert box.slips == [
        Slip(0, "2,049", "Two products would take so long."),
        Slip(0, "8.2e3", "A byte has 8 bits."),
    ]
    assert box.ifs == {"2": "The device would wait: if `launch` were slow."}
    assert box.folds == [["two", "three"]]
    assert box.problems == []


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("one product: …", "two products: …", "not one number in the fold"),
        (
            "Python waits",
            "the device waits",
            "these words are not in the fold",
        ),
        ("| 1 |", "| 3 |", "no such item (right: 3, items: 2)"),
        ("two to three", "two to four", "'four' is not in list"),
        ("two to three", "three to two", "the fold has no cells"),
        ("two to three", "one to two", "does not stand before its fold"),
        ("number: a", "figure: a", "no such line (figure)"),
        ("a product, ms |", "a product |", "the number has no name"),
        ("if 2: ", "choose: ", "no such line (choose)"),
        ("if 2: ", "if 1: ", "no line `if` for a wrong item (item: 2)"),
        ("if 2,049", "if 1,009", "(wrong: 1,009, other: 1,024.5)"),
        ("if 2,049", "if 8,300", "(wrong: 8.2e3, other: 8,300)"),
        ("if 2,049", "if twice", "no number in a line `if` (twice)"),
        ("fold", "if 1: A.\nfold", "`if` for no wrong item (item: 1)"),
        ("fold", "if 2: A.\nfold", "no such line (if 2)"),
        ("to three", "to three\nif 3: A.", "`if` for no wrong item"),
        ("two to three", "two\nfold: two", "folds cells that are folded"),
        ("<!-- predict", "<!-- expect", "the box has no comment"),
    ],
)
def test_what_is_wrong_with_a_box_is_told(old, new, problem):
    (box,) = boxes(notebook(BOX.replace(old, new)))
    assert problem in " ".join(box.problems)


def test_two_numbers_are_not_one():
    printed = "one product: 1 ms\none product: 2 ms\n"
    (box,) = boxes(notebook(printed=printed))
    assert "not one number in the fold" in box.problems[0]


def test_a_box_that_asks_for_nothing_is_told():
    kept = [x for x in BOX.splitlines() if "|" not in x and "if" not in x]
    (box,) = boxes(notebook("\n".join(kept)))
    assert box.problems == ["the box asks for nothing"]


@pytest.mark.parametrize(
    ("pattern", "text", "numbers"),
    [
        ("ring * …", "ring   280  2.49\n", {"2.49"}),
        ("ring …", "string 280", set()),
        ("n = …", "n = 1,234, m = 5", {"1,234"}),
        ("after … steps", "after 5e-03 steps", {"5e-03"}),
        ("more …", "more -97", {"-97"}),
        ("in flight […,", "in flight [8, 8]", {"8"}),
        ("… ms", "12 ms and 13 ms", {"12", "13"}),
        ("… ms", "12 msec", set()),
    ],
)
def test_a_pattern_finds_its_number(pattern, text, numbers):
    assert found_numbers(pattern, text) == numbers


@pytest.mark.parametrize(
    ("number", "written", "near"),
    [
        ("0.555", "0.6", True),  # rounded as it is
        ("0.525", "0.6", False),
        ("1,009", "1,024.5", True),  # within a fiftieth
        ("1,000", "1,024.5", False),
        ("4", "5", False),  # a count is not rounded
        ("1.56e-3", "1.5e-03", False),
        ("1.525e-3", "1.5e-03", True),
        ("0", "0", True),
    ],
)
def test_a_number_is_near_the_one_that_it_rounds_to(number, written, near):
    assert is_near(number, written) == near


def test_the_question_is_no_answer():
    assert predict_boxes.text_of(markdown("one", BOX)) == ""


def test_a_choice_without_its_sentences_is_told():
    kept = [x for x in BOX.splitlines() if not x.startswith("if 2:")]
    (box,) = boxes(notebook("\n".join(kept)))
    assert box.problems == ["no line `if` for a wrong item (item: 2)"]


def test_the_sentences_are_marked_for_the_page():
    (box,) = boxes(notebook())
    two, eight = (slip.sentence for slip in box.slips)
    assert predict.marks(box).split() == (
        f"% predict-box one % predict-if 0 2,049 {two} "
        f"% predict-if 0 8.2e3 {eight} "
        f"% predict-if 1 2 {box.ifs['2']} % predict-do".split()
    )


def test_no_two_boxes_share_a_name():
    """Answers are kept by it, for all pages together."""
    names = [box.cell for nb in NOTEBOOKS.values() for box in boxes(nb)]
    assert len({*names}) == len(names)


def test_the_script_is_small():
    script = (BOOK / "_static" / "predict.js").read_bytes()
    assert len(gzip.compress(script, 9)) <= 4096
