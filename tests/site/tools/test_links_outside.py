"""Links out of the book: retried, reported, and never a failure."""

import shutil
import subprocess
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.repository import ROOT

CHECKS = ROOT / "scripts" / "check"

pytestmark = pytest.mark.slow


@pytest.fixture
def elsewhere():
    """Another site: one page is there, one is not, one stumbles first."""
    asked = Counter()

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self):
            asked[self.path] += 1
            stumbles = self.path == "/stumbles" and asked[self.path] == 1
            gone = self.path == "/gone"
            self.send_response(503 if stumbles else 404 if gone else 200)
            self.end_headers()

        def do_GET(self):
            self.do_HEAD()

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
        server.shutdown()
        thread.join()


def report(root):
    if not shutil.which("node"):
        pytest.skip("no node here")
    if not (CHECKS / "node_modules" / "linkinator").exists():
        pytest.skip("no linkinator here: `make check` installs it")
    done = subprocess.run(
        ["node", CHECKS / "outside.mjs", root],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    return done.returncode, done.stdout.splitlines()


def test_a_dead_link_is_reported_with_its_pages(elsewhere, tmp_path):
    origin, asked = elsewhere
    site = tmp_path / "_build" / "html"
    site.mkdir(parents=True)
    links = ("there", "gone", "stumbles", "there?a=1&amp;b=2")
    shown = "".join(f'<a href="{origin}/{link}">x</a>' for link in links)
    unset = '<a href="https://unset.invalid/OWNER/NAME">x</a>'
    inside = '<a href="b.html">x</a>'
    (site / "a.html").write_text(f"<html>{shown}{unset}{inside}</html>")
    (site / "b.html").write_text(
        f'<html><a class="x" href="{origin}/gone#part">x</a></html>'
    )
    status, lines = report(tmp_path)
    assert status == 0
    assert lines == [
        f"dead: {origin}/gone (status: 404, pages: a.html, b.html)",
        "links out of the site: 4, dead: 1",
    ]
    assert asked["/stumbles"] > 1
    assert asked["/there?a=1&b=2"] >= 1


def test_no_site_is_no_report(tmp_path):
    status, _ = report(tmp_path)
    assert status != 0
