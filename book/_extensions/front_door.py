"""Let the address of the site alone lead to its first page.

The pages lie in a folder, so the top of the site has none. What
sphinx-external-toc would write there is no valid page.
"""

from pathlib import Path

from sphinx.application import Sphinx

PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="refresh" content="0; url={first}">
<title>{title}</title>
</head>
<body><main><h1><a href="{first}">{title}</a></h1></main></body>
</html>
"""


def write_front_door(app: Sphinx, exception: Exception | None) -> None:
    """Write `index.html` at the top of a site that was built."""
    first = f"{app.config.root_doc}.html"
    if exception is None and app.builder.name == "html":
        text = PAGE.format(first=first, title=app.config.html_title)
        Path(app.outdir, "index.html").write_text(text, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension, to come before sphinx-external-toc."""
    app.connect("build-finished", write_front_door, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
