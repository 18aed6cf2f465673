"""Fold the answers of Predict boxes, and give each box a form.

The pages that are written are whole without a script: it folds what stands
between the marks that are put here, and shows the forms.
"""

import json
from html import escape

from docutils import nodes
from predict_boxes import COMMENT, Asked, Box, Slip, boxes
from sphinx.application import Sphinx
from sphinx.util import logging

FIELD = """<label>{label} <span><input type="text" size="8" \
autocomplete="off" pattern=" *[+\\-−]?[0-9.,]+(e[+\\-]?[0-9]+)?(/[0-9.]+)? *" \
title="a number, such as 0.5, 1,024, 3/8 or 2e-7"> {unit}</span></label>
"""
CHOICE = '<label><input type="radio" name="{cell}" value="{number}"> <span>'
IF = '<div class="predict-if" data-of="{place}" data-if="{number}" hidden>'
END = """<p class="predict-do"><button type="submit">Compare</button>
<button type="button" class="predict-show">Show without guessing</button>
<span>The answer is folded.</span></p>
<p class="predict-told" role="status" tabindex="-1"></p>
<p class="predict-again"><button type="button">Ask me again</button></p>
</form>
"""
NOTE = """<p class="predict-note">Folded until you have answered
<a href="#predict-{cell}">the box above</a>.</p>
"""
FOUND = """<div class="predict-found" id="predict-found">
<p class="rubric">Your predictions</p>
<table class="table">
<thead><tr><th scope="col">asked</th><th scope="col">you said</th>
<th scope="col">it is</th><th scope="col">miss</th></tr></thead>
<tbody></tbody>
</table>
<p class="predict-mean">None on this page yet.</p>
<p><label><input type="checkbox"> Show all answers, on all pages</label></p>
<p><button type="button">Forget all predictions</button></p>
</div>
"""
LOGGER = logging.getLogger(__name__)


def mark(app: Sphinx, docname: str, content: list[str]) -> None:
    """Put comments into a notebook: where boxes end, and what they fold."""
    if not app.env.doc2path(docname).endswith(".ipynb"):
        return
    notebook = json.loads(content[0])
    found = {box.cell: box for box in boxes(notebook)}
    app.env.temp_data["predict"] = found
    first = {f[0]: b.cell for b in found.values() for f in b.folds}
    last = {fold[-1] for box in found.values() for fold in box.folds}
    cells = []
    for cell in notebook["cells"]:
        name = cell["id"]
        if name in first:
            cells.append(comment(f"% predict-fold {first[name]}", name))
        cells.append(cell)
        if name in last:
            cells.append(comment("% predict-end", name))
        if name in found:
            for problem in found[name].problems:
                LOGGER.warning(problem, location=f"{docname}:{name}")
            source = "".join(cell["source"])
            marked = marks(found[name])
            cell["source"] = COMMENT.sub(lambda _, to=marked: to, source)
    content[0] = json.dumps({**notebook, "cells": cells})


def marks(box: Box) -> str:
    """Return what stands in the place of the comment of a box."""
    wrong = [*box.slips]
    wrong += [Slip(len(box.numbers), n, said) for n, said in box.ifs.items()]
    ifs = [f"\n% predict-if {of} {n}\n\n{said}\n" for of, n, said in wrong]
    start, end = f"\n% predict-box {box.cell}\n", "\n% predict-do\n"
    return "".join([start, *ifs, end])


def comment(text: str, beside: str) -> dict[str, object]:
    """Return a cell that holds a comment, with an id of its own."""
    name = f"{beside}-{text.split()[1]}"
    return {
        "cell_type": "markdown",
        "id": name,
        "metadata": {},
        "source": text,
    }


def raw(html: str) -> nodes.raw:
    """Return a node that is written as it is."""
    return nodes.raw("", html, format="html")


def field(asked: Asked) -> str:
    """Return the label and the field of a number."""
    return FIELD.format(label=escape(asked.label), unit=escape(asked.unit))


def form(box: Box, admonition: nodes.Element, place: nodes.Node) -> None:
    """Begin the form of a box, before the choices if there are some."""
    asked = [list(number) for number in box.numbers]
    start, fields = "", "".join(map(field, box.numbers))
    if box.choice:
        asked.append([box.choice.label, None, box.choice.found])
        (items,) = admonition.findall(nodes.enumerated_list)
        for number, item in enumerate(items, 1):
            label = CHOICE.format(cell=box.cell, number=number)
            item[0].insert(0, raw(label))
            item[0].append(raw("</span></label>"))
        start = f"<fieldset>\n<legend>{escape(box.choice.label)}</legend>\n"
        fields = f"</fieldset>\n{fields}"
    start = (
        f'<form class="predict" id="predict-{box.cell}" name="{box.cell}"'
        f' data-asked="{escape(json.dumps(asked))}">\n{start}'
    )
    if box.choice:
        admonition.insert(admonition.index(items), raw(start))
        start = ""
    place.parent.replace(place, raw(start + fields))


def fold(box: Box, place: nodes.Node) -> None:
    """Put a fold around what stands between two comments."""
    parent = place.parent
    rest = parent.children[parent.index(place) + 1 :]
    ends = [n for n in rest if n.astext() == "predict-end" and is_mark(n)]
    if not ends:
        LOGGER.warning("the fold leaves its section", location=box.cell)
        return
    before = parent[parent.index(place) - 1] if parent.index(place) else None
    beside = isinstance(before, nodes.Admonition)
    note = "" if beside else NOTE.format(cell=box.cell)
    html = f'{note}<div class="predict-fold" data-box="{box.cell}">'
    parent.replace(place, raw(html))
    parent.replace(ends[0], raw("</div>"))


def hide(wrong: str, place: nodes.Node) -> None:
    """Hide the sentence after a comment; the script shows it if need be."""
    parent = place.parent
    after = parent.index(place) + 2
    parent.insert(after, raw("</div>"))
    of, number = wrong.split()
    parent.replace(place, raw(IF.format(place=of, number=number)))


def is_mark(node: nodes.Node) -> bool:
    """Tell whether a node is a comment of `mark`."""
    return isinstance(node, nodes.comment) and node.astext().startswith(
        "predict-"
    )


def fold_answers(app: Sphinx, doctree: nodes.document) -> None:
    """Put forms and folds where the comments stand."""
    found = app.env.temp_data.get("predict", {})
    for place in [node for node in doctree.findall() if is_mark(node)]:
        what, _, name = place.astext().partition(" ")
        if what == "predict-box":
            form(found[name], place.parent, place)
        elif what == "predict-fold":
            fold(found[name], place)
        elif what == "predict-if":
            hide(name, place)
        elif what == "predict-do":
            place.parent.replace(place, raw(END))
    if found:
        last_section(doctree).append(raw(FOUND))


def last_section(doctree: nodes.document) -> nodes.Element:
    """Return the section in which the chapter ends: its summary."""
    sections = list(doctree.findall(nodes.section))
    summary = [s for s in sections if s[0].astext() == "Summary"]
    return [*sections[:1], *summary][-1]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension."""
    app.connect("source-read", mark)
    app.connect("doctree-read", fold_answers)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
