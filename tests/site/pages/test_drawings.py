"""The page knows how large its pictures are before they arrive."""

import re

import drawings
import pytest

PLOT = '<?xml?>\n<svg xmlns:x="y" width="374.4pt" height="216pt" viewBox="0">'
DRAWING = '<svg class="dpkit-drawing" width="640" height="148" viewBox="0">'


@pytest.mark.parametrize(
    ("svg", "attributes"),
    [
        (PLOT, 'width="499" height="288" '),
        (DRAWING, 'class="dpkit-drawing" width="640" height="148" '),
    ],
)
def test_the_size_is_that_of_the_file(tmp_path, svg, attributes):
    (tmp_path / "a.svg").write_text(svg, encoding="utf-8")
    body = '<img alt="A" src="../_images/b.svg" /> <img src="c.png" />'
    found = drawings.with_sizes(body, {"b.svg": tmp_path / "a.svg"})
    assert found == body.replace("<img alt", f"<img {attributes}alt")


@pytest.mark.slow
def test_every_picture_of_a_cell_has_its_size(site):
    images = [
        tag
        for page in site.glob("book/*.html")
        for tag in re.findall(
            r"<img [^>]*_images[^>]*>", page.read_text("utf-8")
        )
    ]
    assert len(images) > 60
    assert all(re.search(r'width="\d+" height="\d+"', t) for t in images)
