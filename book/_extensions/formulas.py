"""Set formulas when the site is built, by node.

A page then needs no script for them, and nothing jumps when they are set.
Where there is no node, the page sets them.
"""

import atexit
import shutil

from sphinx.application import Sphinx
from sphinx.config import Config
from sphinxcontrib import katex

PATIENCE = 60.0  # seconds, on a machine that is busy


def set_here(app: Sphinx, config: Config) -> None:
    """Choose where formulas are set."""
    config.katex_prerender = shutil.which(katex.NODEJS_BINARY) is not None
    katex.STARTUP_TIMEOUT = katex.RENDER_TIMEOUT = PATIENCE


def end_node(app: Sphinx, exception: Exception | None) -> None:
    """End the program that sets formulas: it would outlive the build."""
    server = katex.KaTeXServer.katex_server
    if server is not None:
        atexit.unregister(katex.KaTeXServer.terminate)
        server.terminate()
        katex.KaTeXServer.katex_server = None


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension."""
    app.connect("config-inited", set_here)
    app.connect("build-finished", end_node)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
