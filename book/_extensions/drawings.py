"""Tell the page how large its pictures are, before they arrive.

Without it the text would jump when they do. What dpkit has drawn is named by
the class `dpkit-drawing`: such a picture may be as wide as the text.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

IMAGE = re.compile(
    r'<img (?P<before>[^>]*)src="[^"]*_images/(?P<file>[^"]+\.svg)"'
)
SIZE = re.compile(r'<svg [^>]*?\bwidth="([\d.]+)(pt)?" height="([\d.]+)(pt)?"')
POINT = 4 / 3  # pixels
DRAWING = "dpkit-drawing"


def attributes(svg: str) -> str:
    """Return the attributes of an image that shows a picture.

    These are its class, if dpkit has drawn it, and its size in pixels.
    """
    match = SIZE.search(svg)
    assert match is not None
    width, height = (
        round(float(match[i]) * (POINT if match[i + 1] else 1)) for i in (1, 3)
    )
    kind = f'class="{DRAWING}" ' if f'class="{DRAWING}"' in svg else ""
    return f'{kind}width="{width}" height="{height}" '


def with_sizes(body: str, sources: Mapping[str, Path]) -> str:
    """Give each image of a page its size.

    Args:
        body: The HTML of the page.
        sources: The file that each image is a copy of, by its name.
    """

    def sized(match: re.Match[str]) -> str:
        svg = sources[match["file"]].read_text("utf-8")
        return match[0].replace("<img ", f"<img {attributes(svg)}", 1)

    return IMAGE.sub(sized, body)


def add_sizes(
    app: Sphinx, page: str, template: str, context: dict[str, Any], tree: Any
) -> None:
    """Give the images of a page their sizes."""
    if "body" in context and app.builder.name == "html":
        images = app.builder.images.items()
        sources = {name: Path(app.srcdir, source) for source, name in images}
        context["body"] = with_sizes(context["body"], sources)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension."""
    app.connect("html-page-context", add_sizes)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
