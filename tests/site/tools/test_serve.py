"""`make serve`: the book on a port, or one line that says why not."""

import signal
import socket
import subprocess
import sys
from urllib.request import urlopen

import pytest

from tests.repository import ROOT

SCRIPT = ROOT / "scripts" / "pages" / "serve.py"


def serve(folder, port):
    return subprocess.Popen(
        [sys.executable, SCRIPT, folder, str(port)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def test_a_second_one_says_in_a_line_that_the_port_is_taken(tmp_path, port):
    (tmp_path / "index.html").write_text("a page")
    first = serve(tmp_path, port)
    try:
        assert f"http://localhost:{port};" in first.stdout.readline()
        with urlopen(f"http://127.0.0.1:{port}/", timeout=1000) as page:
            assert page.read() == b"a page"
        second = serve(tmp_path, port)
        told, error = second.communicate(timeout=1000)
        assert (told, second.returncode) == ("", 1)
        (line,) = error.splitlines()
        assert f"(port: {port}, why: Address already in use)" in line
        assert "PORT=" in line
        assert first.poll() is None
        first.send_signal(signal.SIGINT)
        _, error = first.communicate(timeout=1000)
        assert first.returncode == 0
        assert "Traceback" not in error
    finally:
        first.kill()


@pytest.mark.parametrize("port", ["", "abc", "0", "-1", "65536"])
def test_what_is_no_port(tmp_path, port):
    told, error = serve(tmp_path, port).communicate(timeout=1000)
    assert told == ""
    (line,) = error.splitlines()
    assert f"(PORT: {port!r})" in line


def test_a_port_can_be_tried(port):
    """It is let go: it can be tried again."""
    for _ in range(2):
        assert serve("--try", port).wait(1000) == 0
    with socket.create_server(("localhost", port)):
        told, error = serve("--try", port).communicate(timeout=1000)
    assert told == ""
    (line,) = error.splitlines()
    assert line.endswith(f"make serve PORT={port + 1}")
