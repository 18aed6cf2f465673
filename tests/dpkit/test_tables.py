"""Tables show every cell once, as text and as HTML."""

import re
from html.parser import HTMLParser

import pytest

from dpkit.theory.tables import Table

TABLE = Table(
    "link | predicted, ms:,.1f | simulated:.1%|fits",
    [("nvlink2 <2>", 1234.56, 0.5, True), ("pcie3", "always", None, False)],
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
        "nvlink2 <2>        1,234.6      50.0%  True\n"
        "pcie3               always             False"
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
        ["nvlink2 <2>", "1,234.6", "50.0%", "True"],
        ["pcie3", "always", "", "False"],
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
    html = Table("a's | b", [(3, 'layers\' "seconds"')])._repr_html_()
    words = re.sub(r"<[^>]*>", " ", html)
    assert words.split() == ["a's", "b", "3", "layers'", '"seconds"']


def test_whole_numbers_without_a_format_stand_right():
    assert str(Table("rows", [(1,), (1000,)])).splitlines()[1] == "   1"


def test_a_table_without_rows_shows_its_heads():
    assert str(Table("link | ms:.1f")) == "link  ms"


def test_rows_of_another_length_are_refused():
    with pytest.raises(ValueError, match=r"\(cells: 1, columns: 4\)"):
        TABLE.add("nvlink2")
