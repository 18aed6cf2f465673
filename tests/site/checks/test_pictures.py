"""Each picture of the plain notebooks has a PNG, which a browser draws."""

import notebook_pictures
import pytest

from tests.site.tools.test_plain_notebooks import SVG, code, drawing, read


def test_a_picture_has_a_png_beside_it(monkeypatch, tmp_path):
    image = {"mystnb": {"image": {"alt": "a red line"}}}
    outputs = drawing(
        monkeypatch,
        tmp_path,
        [
            code("a", metadata=image, **{"image/svg+xml": SVG}),
            code("b", **{"text/html": f"<div>{SVG}</div>", "text/plain": "c"}),
        ],
    )
    assert [[*o["data"]] for o in outputs] == [
        ["image/svg+xml", "image/png"],
        ["text/plain", "image/png"],
    ]
    said = [o["metadata"]["image/png"] for o in outputs]
    assert said == [
        {"alt": words, "height": 20, "width": 60}
        for words in ("a red line", "a line")
    ]
    assert len({o["data"]["image/png"] for o in outputs}) == 1


@pytest.mark.slow
def test_each_picture_of_the_plain_notebooks_has_a_png(site):
    """The site was built where there was a browser."""
    found = [
        output
        for path in site.glob("_sources/book/*.ipynb")
        for _, output in notebook_pictures.outputs(read(path))
    ]
    assert len(found) > 70
    for output in found:
        assert "image/png" in output["data"]
        assert "text/html" not in output["data"]
