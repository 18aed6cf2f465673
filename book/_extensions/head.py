"""What the head of each page says of it: for other sites, and for search.

Descriptions and titles come from sphinxext-opengraph. What needs the public
address of the pages (`html.baseurl` in `_config.yml`, which `make address`
writes) is there only if there is one: the canonical address, which Sphinx
adds, a picture for links, and a sitemap.
"""

import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from xml.sax.saxutils import escape

from sphinx.application import Sphinx
from sphinx.config import Config

PREVIEW = "_static/preview.png"
VIEWPORT = re.compile(r'<meta name="viewport"[^>]*>\n?')
OWN_ADDRESS = re.compile(r'<meta property="og:url"[^>]*>\n?')
SITEMAP = """<?xml version="1.0" encoding="utf-8"?>
<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">
{pages}
</urlset>
"""


def use_address(app: Sphinx, config: Config) -> None:
    """Tell the extensions the public address, if there is one."""
    address = config.html_baseurl
    config.ogp_site_url = address
    config.ogp_image = PREVIEW if address else None
    # The page that a server shows in place of one that is not there stands
    # at no address of its own, so that its links are absolute.
    config.notfound_urls_prefix = urlsplit(address).path or "/"


def mend(
    app: Sphinx, page: str, template: str, context: dict[str, Any], tree: Any
) -> None:
    """Leave one tag `viewport`, and no address where none is known.

    The page that is not there begins its links at the top of the book.
    """
    # docutils adds one to that of Sphinx.
    tags = VIEWPORT.sub("", context.get("metatags", ""))
    if not app.config.html_baseurl:
        tags = OWN_ADDRESS.sub("", tags)
    context["metatags"] = tags
    if page == app.config.notfound_pagename:
        top = app.config.notfound_urls_prefix
        context["content_root"] = top
        context["pageurl"] = None
        body = app.config.notfound_context["body"]
        context["body"] = body.replace('href="', f'href="{top}')


def write_sitemap(app: Sphinx, exception: Exception | None) -> None:
    """Write the addresses of the pages, for search engines."""
    address = app.config.html_baseurl
    if exception is not None or app.builder.name != "html" or not address:
        return
    pages = "\n".join(
        f"<url><loc>{escape(address + app.builder.get_target_uri(page))}"
        "</loc></url>"
        for page in sorted(app.env.found_docs)
    )
    text = SITEMAP.format(pages=pages)
    Path(app.outdir, "sitemap.xml").write_text(text, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension, to come after those that add tags."""
    app.setup_extension("sphinxext.opengraph")
    app.setup_extension("notfound.extension")
    app.connect("config-inited", use_address, priority=400)
    app.connect("html-page-context", mend, priority=900)
    app.connect("build-finished", write_sitemap)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
