"""How long things are is counted right, and printed."""

import json

import sizes

LONG = "A sentence " + "with one more word " * 8 + "is long."


def test_the_sizes_of_a_small_project(tmp_path, capsys):
    (tmp_path / "dpkit/room").mkdir(parents=True)
    (tmp_path / "scripts").mkdir()
    (tmp_path / "book").mkdir()
    body = "".join(f"    x{i} = {i}  # one\n" for i in range(25))
    source = f'def f():\n    """Do.\n\n    It.\n    """\n    # Say.\n\n{body}'
    (tmp_path / "dpkit/room/a.py").write_text(source)
    (tmp_path / "dpkit/long.py").write_text("x = 1\n" * 301)
    (tmp_path / "README.md").write_text(f"Short.\n\n{LONG}\n")
    (tmp_path / "_toc.yml").write_text(
        "parts:\n  - caption: Chapters\n    chapters:\n      - file: book/a\n"
    )
    cells = [
        {"cell_type": kind, "id": kind, "source": source, "metadata": {}}
        for kind, source in [("markdown", "Three short words."),
                             ("code", "x = 1\n\n" * 13)]
    ]  # fmt: skip
    (tmp_path / "book/a.ipynb").write_text(json.dumps({"cells": cells}))
    sizes.main(tmp_path)
    assert capsys.readouterr().out.splitlines() == [
        "dpkit: 333 lines (long.py 301, room 32, …)",
        "  dpkit/long.py: 301 lines",
        "  dpkit/room/a.py:1 f: 26 lines of code",
        "book/a.ipynb: 3 words, 1 cells of code",
        "  book/a.ipynb, cell code: 13 lines",
        "sentences of more than 30 words:",
        f"  README.md:3: 36 words: {LONG[:50]}…",
    ]
