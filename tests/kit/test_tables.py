"""Tables show every cell once, as text and as HTML."""

import re
from html.parser import HTMLParser

import pytest

from dpkit.tables import table

TABLE = table(
    [
        {
            "link": "nvlink2 <2>",
            "predicted, ms": 1234.56,
            "simulated": f"{0.5:.1%}",
            "fits": True,
        },
        {
            "link": "pcie3",
            "predicted, ms": "always",
            "simulated": None,
            "fits": False,
        },
        {"link": "pcie4", "predicted, ms": 41.0, "fits": True},
    ],
    caption="10 MB",
)


class Cells(HTMLParser):
    """Collects rows as (tag, attributes, words); checks that tags match."""

    def __init__(self, text):
        super().__init__()
        self.rows, self.open = [], []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("th", "td"):
            self.rows[-1].append([tag, dict(attrs), ""])

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("th", "td"):
            self.rows[-1][-1][2] += data


def test_words_stand_left_and_numbers_right():
    assert str(TABLE) == (
        "10 MB\n"
        "link         predicted, ms  simulated  fits\n"
        "nvlink2 <2>          1,235      50.0%  True\n"
        "pcie3               always             False\n"
        "pcie4                 41.0             True"
    )


def test_the_html_holds_the_words_of_the_text():
    head, *rows = Cells(TABLE._repr_html_()).rows
    assert [words for _, _, words in head] == [
        "link",
        "predicted, ms",
        "simulated",
        "fits",
    ]
    assert [[words for _, _, words in row] for row in rows] == [
        ["nvlink2 <2>", "1,235", "50.0%", "True"],
        ["pcie3", "always", "", "False"],
        ["pcie4", "41.0", "", "True"],
    ]
    assert "<caption>10 MB</caption>" in TABLE._repr_html_()


def test_heads_say_what_they_are_the_head_of():
    head, *rows = Cells(TABLE._repr_html_()).rows
    assert all((tag, a["scope"]) == ("th", "col") for tag, a, _ in head)
    for first, *others in rows:
        assert (first[0], first[1]["scope"]) == ("th", "row")
        assert {tag for tag, _, _ in others} == {"td"}


def test_the_html_aligns_as_the_text_does():
    for row in Cells(TABLE._repr_html_()).rows:
        left = ["style" in attributes for _, attributes, _ in row]
        assert left == [True, False, False, True]
    assert 'style="text-align:right"' in TABLE._repr_html_().splitlines()[0]


def test_markup_has_no_numbers_outside_of_tags():
    html = table([{"a's": 3, "b": 'layers\' "seconds"'}])._repr_html_()
    words = re.sub(r"<[^>]*>", " ", html)
    assert words.split() == ["a's", "b", "3", "layers'", '"seconds"']


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0.0, "0.00"),
        (0.012345, "0.0123"),
        (8.2, "8.20"),
        (-92.04, "-92.0"),
        (99.96, "100"),
        (246.4, "246"),
        (1234.5, "1,234"),
        (3e-7, "3.00e-07"),
        (7, "7"),
        (65536, "65,536"),
        (True, "True"),
        (None, ""),
        ("8.2", "8.2"),
    ],
)
def test_floats_have_three_digits_and_integers_all(value, words):
    assert str(table([{"x": "." * 9}, {"x": value}])).split()[2:] == (
        [words] if words else []
    )


@pytest.mark.parametrize(
    "words",
    [
        "8.25",
        "1,234",
        "57%",
        "< 1e-12",
        "+3%",
        "-3.1%",
        "×1.05",
        "÷2",
        "1e+6",
        "2.5 MB",
        "0 B",
        "78 µs",
    ],
)
def test_strings_that_read_as_numbers_stand_right(words):
    assert str(table([{"a long head": words}])).splitlines()[1] == (
        words.rjust(len("a long head"))
    )


@pytest.mark.parametrize(
    "words", ["4 rows", "22B", "1F0", "2, 4", "1 × 8", "-"]
)
def test_other_words_stand_left(words):
    assert str(table([{"a long head": words}])).splitlines()[1] == words


def test_a_head_that_a_row_lacks_leaves_an_empty_cell():
    rows = [{"k": 1, "ms": 8.25}, {"k": 2}, {"k": 4, "s": 1}]
    assert str(table(rows)).splitlines() == [
        "k    ms  s",
        "1  8.25",
        "2",
        "4        1",
    ]


def test_a_table_without_rows_is_empty():
    assert str(table([])) == ""
