"""Each kind of what `check/words.py` counts is seen where it is planted."""

import json
import shutil

import pytest
import words

SIMPLY = "It is simply so."


def cell(kind, id, source, **metadata):
    return {
        "cell_type": kind, "id": id, "source": [source], "metadata": metadata
    }  # fmt: skip


def figure(name):
    return {"mystnb": {"figure": {"name": name}}}


@pytest.fixture
def book(tmp_path):
    """Return the root of a small project in which nothing is to be mended."""
    for folder in ("book", "scripts", "dpkit"):
        (tmp_path / folder).mkdir()
    (tmp_path / "_toc.yml").write_text(
        "root: book/first\nparts:\n  - caption: One\n"
        "    numbered: true\n    chapters:\n"
        "      - file: book/second\n"
    )
    (tmp_path / "book/notation.md").write_text(
        ":::{glossary}\nbig shard\nbig chunk\n    A piece.\n"
        "    Explained in {doc}`second`.\n:::\n"
    )
    for name in ("first", "second"):
        write(tmp_path, name, cell("markdown", "a", "Some text."))
    return tmp_path


def write(root, name, *cells):
    notebook = json.dumps({"cells": cells})
    (root / f"book/{name}.ipynb").write_text(notebook)


def found(root):
    return [(f.kind, f.location) for f in words.find_all(root)]


def test_nothing_is_found_where_nothing_is_to_be_mended(book):
    text = f"Short. Just right: `{SIMPLY}`\n\n```python\n{SIMPLY}\n```\n"
    (book / "README.md").write_text(f"{text}\n$$\n{SIMPLY}\n$$\n")
    example, drawing = f"    >>> 1\n    {SIMPLY}", f"::\n\n    {SIMPLY}"
    (book / "dpkit/b.py").write_text(f"# Say so\n# rank 0   {SIMPLY}\n")
    installed = book / "scripts/check/node_modules"  # not ours
    installed.mkdir(parents=True)
    (installed / "a.py").write_text(f"# {SIMPLY}\n")
    (book / "dpkit/a.py").write_text(
        f'"""Do it.\n\nExample:\n{example}\n\n{drawing}\n"""'
    )
    assert found(book) == []


@pytest.mark.parametrize(
    "sentence",
    ["It is simply so.", "It is\nsimply so.", "Who is silent is lost.",
     "Lost is who is silent.", "The seed is what chance says.",
     "As ever, it waits.", "It begins anew."],
)  # fmt: skip
def test_refused_words(book, sentence):
    (book / "README.md").write_text(f"A line.\n\nAnother one. {sentence}\n")
    assert found(book) == [("refused words", "README.md:3")]
    (book / "README.md").write_text("Who is it? Nobody forms it of ourselves.")
    assert found(book) == []


def test_refused_words_in_a_predict_box(book):
    box = f"Who?\n<!-- predict\nif 2: {SIMPLY}\nfold: a\n-->"
    box = f":::{{admonition}} Predict\n{box}\n:::"
    write(book, "first", cell("markdown", "a", box))
    assert found(book) == [("refused words", "book/first.ipynb, cell a")]


def test_refused_words_in_code(book):
    (book / "dpkit/a.py").write_text(
        '"""Let it go."""\n\n\ndef f():\n    """Return x.\n\n    Args:\n'
        '        x: Simply a number.\n    """\n    # Obviously.\n    # So.\n'
    )
    places = [f"dpkit/a.py:{line}" for line in (1, 8, 10)]
    assert found(book) == [("refused words", place) for place in places]


def test_terms_before_their_explanation(book):
    early = cell("markdown", "b", "Some big-shards. Another big shard.")
    for name in ("first", "second"):
        write(book, name, early)
    assert found(book) == [("early terms", "book/first.ipynb, cell b")]
    linked = (
        "A {term}`big chunk`, or {term}`two <big shard>`: {doc}`big-shard`."
    )
    write(book, "first", cell("markdown", "b", linked))
    assert found(book) == []


def test_a_term_without_a_page_is_refused(book):
    page = book / "book/notation.md"
    page.write_text(":::{glossary}\nbig shard\n    A piece.\n:::\n")
    with pytest.raises(ValueError, match="no page explains a term"):
        words.find_all(book)


def test_figures_without_a_reference(book):
    picture = cell("code", "b", "draw()", **figure("fig-one"))
    write(book, "first", picture, cell("markdown", "c", "See fig-one-more."))
    assert found(book) == [("lonely figures", "book/first.ipynb, cell b")]
    write(book, "second", cell("markdown", "c", "See {numref}`fig-one`."))
    assert found(book) == []


def test_cells_that_format(book):
    printing = 'print(x)\nx = f"{y}"\nprint(x)\n'
    write(
        book,
        "first",
        cell("code", "long", "x = 1\n" * 30),
        cell("code", "hidden", printing, tags=["remove-cell"]),
        cell("code", "half", printing + "x\n" * 3),
        cell("code", "most", printing + "x\n" * 2),
    )
    assert found(book) == [("formatting cells", "book/first.ipynb, cell most")]


def test_what_unfolds_is_not_read(book):
    """Nor is a solution; what stands after it is."""
    text = "A short sentence."
    opens = cell("markdown", "s", "```{solution-start} ex\n```\n" + text)
    ends = cell("markdown", "e", "```{solution-end}\n```\n\nMore follows.")
    hidden = cell("code", "h", "x", tags=["hide-cell"])
    write(book, "second", cell("markdown", "a", text), hidden, opens, ends)
    seen = [c["source"] for c in words.on_the_page(book, "book/second.ipynb")]
    assert seen == [text, "More follows."]
    folded = f":::{{note}}\n:class: dropdown\n{text}\n:::\n\nTwo words."
    assert words.num_words(folded) == 2
    asked = f"<!-- predict\nif 1: {text}\n-->\n\nTwo words."
    assert words.num_words(asked) == 2


def test_cells_without_a_sentence_between(book):
    hidden = cell("code", "hidden", "x", tags=["hide-input"])
    stub = cell("code", "stub", "x", tags=["stub"])
    write(
        book, "second", cell("code", "a", "x"), hidden, cell("code", "b", "x"),
        cell("markdown", "c", "It is so."), stub, cell("code", "d", "x"),
    )  # fmt: skip
    assert found(book) == [("bare cells", "book/second.ipynb, cell b")]


def test_what_is_found_is_printed_and_fails(book, capsys):
    readme = book / "README.md"
    readme.write_text("It is simply one.\n\nAnd simply another.\n")
    assert words.main(book) == "to be mended: 2"
    told = capsys.readouterr().out
    assert 'README.md:1: refused words: "simply"' in told
    assert 'README.md:3: refused words: "simply"' in told
    readme.write_text("It is one.\n")
    assert words.main(book) is None
    assert capsys.readouterr().out == ""


def test_a_new_chapter_needs_no_mending(book):
    template = words.ROOT / "scripts/chapters/template/new-chapter.ipynb"
    shutil.copy(template, book / "book/first.ipynb")
    assert found(book) == []
