"""Let the builder of the single page know every node that the pages know.

Sphinx takes the handlers registered for `singlehtml`, or else those for
`html`. Some extension registers a few for the former, which hides all others.
"""

from sphinx.application import Sphinx


def share_handlers(app: Sphinx) -> None:
    """Add the handlers of `html` to those of `singlehtml`."""
    handlers = app.registry.translation_handlers
    handlers["singlehtml"] = handlers["html"] | handlers.get("singlehtml", {})


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension."""
    app.connect("builder-inited", share_handlers)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
