"""Set formulas when the site is built, by node.

A page then needs no script for them, and nothing jumps when they are set.
Where there is no node, the page sets them.
"""

import atexit
import os
import shutil
import socket
import time
from pathlib import Path
from subprocess import PIPE, Popen

from sphinx.application import Sphinx
from sphinx.config import Config
from sphinxcontrib import katex

PATIENCE = 60.0  # seconds, on a machine that is busy
LAST = 900  # among those who are told that the build is finished


def set_here(app: Sphinx, config: Config) -> None:
    """Choose where formulas are set."""
    config.katex_prerender = shutil.which(katex.NODEJS_BINARY) is not None
    katex.STARTUP_TIMEOUT = katex.RENDER_TIMEOUT = PATIENCE
    if os.name == "posix":
        katex.KaTeXServer.start_server_process = staticmethod(start_node)


def start_node(
    folder: Path, timeout: float
) -> tuple[Popen[bytes], socket.socket]:
    """Start the program that sets formulas; return it, and a way to it.

    The extension's own start connects as soon as there is a socket. Now and
    then node does not listen yet; the build then fails, and node stays.
    """
    path = folder / "katex.sock"
    command = katex.KaTeXServer.build_command(socket=path)
    node = Popen(command, stdin=PIPE, stdout=PIPE, cwd=folder)
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        way = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            way.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            way.close()
            time.sleep(0.01)
        else:
            return node, way
    node.kill()
    raise katex.KaTeXServer.timeout_error(timeout)


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
    app.connect("build-finished", end_node, priority=LAST)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
