"""The archive of a term is enough for a course, without a network.

It is unpacked elsewhere. An environment finds the pinned libraries, and no
dpkit but that of the archive. Commands are those of the archive's README.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

import build_archive
import pytest
from assignment.chapter import exercises_of
from make_assignment import make

from tests.repository import ROOT
from tests.site.checks.conftest import CHECKS, give_up
from tests.site.tools.offline import in_namespace, namespaces, refusing

README = (build_archive.HERE / "README.md").read_text("utf-8")
COMMANDS = re.findall(r"(?ms)^```\n(.*?)^```$", README)
CONNECT = "import socket; socket.create_connection(('192.0.2.1', 80), 9)"
# In the browser: the stub of each exercise on a page, and its solution.
SOLVE = f"""
const {{ visit }} = await import("{CHECKS.as_uri()}/browser.mjs");
const {{ check }} = await import("{CHECKS.as_uri()}/editor.mjs");
const [page, answers] = process.argv.slice(1);
await visit([page], async (tab) => {{
  await tab.goto(page, {{ waitUntil: "load" }});
  for (const place of await tab.locator(".exercise-in-page").all()) {{
    const name = await place.getAttribute("data-exercise");
    for (const code of JSON.parse(answers)[name]) {{
      console.log(name, await check(place, code));
    }}
  }}
  return [];
}});
"""


def command(start: str) -> str:
    """Return the command of the README whose last line starts so."""
    (found,) = [c for c in COMMANDS if c.splitlines()[-1].startswith(start)]
    return found


class References(HTMLParser):
    """The addresses that a page refers to."""

    def __init__(self):
        super().__init__()
        self.found = set()

    def handle_starttag(self, tag, attrs):
        self.found |= {v for k, v in attrs if k in ("href", "src") and v}


def missing(page):
    """Return what a page refers to that does not lie where it says."""
    parser = References()
    parser.feed(page.read_text("utf-8"))
    paths = {
        unquote(urlsplit(address).path)
        for address in parser.found
        if not urlsplit(address).scheme
    }
    assert paths
    return sorted(p for p in paths if p and not (page.parent / p).exists())


class Reader:
    """Somebody who has the archive, and the libraries, and no network."""

    def __init__(self, folder, archive, namespace):
        self.namespace = namespace
        with zipfile.ZipFile(archive) as file:
            file.extractall(folder)
        (self.top,) = folder.iterdir()
        self.env = {
            "PATH": f"{folder / 'env' / 'bin'}:{os.environ['PATH']}",
            "HOME": str(folder),
            "LANG": "C.UTF-8",
            "OMP_NUM_THREADS": "1",
            # The libraries may come with a dpkit, which is to stay unseen.
            "PIP_IGNORE_INSTALLED": "1",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        }
        if not namespace:
            self.env |= refusing(folder / "refusing")
            self.env["PYTHONPATH"] = str(folder / "refusing")
        venv.create(folder / "env", symlinks=True)
        (own,) = (folder / "env").glob("lib/python*/site-packages")
        # As paths and no more: what .pth files there name stays unseen.
        places = [path for path in sys.path if path.endswith("-packages")]
        (own / "libraries.pth").write_text("\n".join(places) + "\n")

    def run(self, *words):
        words = [str(word) for word in words]
        if self.namespace:
            words = in_namespace(words)
        done = subprocess.run(
            words,
            cwd=self.top,
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        return done.returncode, done.stdout + done.stderr

    def python(self, *words):
        return self.run("python", *words)

    def shell(self, text):
        status, said = self.run("bash", "-ec", text)
        assert status == 0, said
        return said


@pytest.fixture(scope="module")
def archive(site, wheel, tmp_path_factory):
    """The archive, of a site and of a wheel of the files as they are."""
    if not (site / "_static" / "live" / "python.js").exists():
        give_up()
    folder = tmp_path_factory.mktemp("archive")
    return build_archive.pack(ROOT, site, wheel, folder)


@pytest.fixture(scope="module")
def reader(archive, tmp_path_factory):
    """A reader who has installed the wheels of the archive."""
    folder = tmp_path_factory.mktemp("reader")
    made = Reader(folder, archive, namespaces())
    made.shell(command("python -m pip install --no-index"))
    return made


@pytest.mark.parametrize("namespace", [True, False])
def test_no_network_can_be_reached(namespace, tmp_path):
    if namespace and not namespaces():
        pytest.skip("no network namespaces here: they cannot be made")
    words = [sys.executable, "-c", CONNECT]
    env = dict(os.environ)
    if namespace:
        words = in_namespace(words)
    else:
        env |= refusing(tmp_path / "refusing")
    done = subprocess.run(words, env=env, capture_output=True, text=True)
    assert "Network is unreachable" in done.stderr


@pytest.mark.slow
def test_the_folders_are_those_of_the_readme(reader):
    table = README.split("| folder or file |")[1].split("\n\n")[0]
    named = re.findall(r"(?m)^\| `([^`]+)` \|", table)
    licences = [path.name for path in reader.top.glob("LICENSE*")]
    found = {path.name for path in reader.top.iterdir()}
    assert found == {n.rstrip("/") for n in named} | {"README.md", *licences}
    for name in re.findall(r"`((?:site|notebooks|course)/[^`]+)`", README):
        assert (reader.top / name).exists(), name


@pytest.mark.slow
def test_what_pages_refer_to_is_in_the_archive(reader):
    site = reader.top / "site"
    pages = [site / "index.html", *sorted(site.glob("book/*.html"))]
    assert len(pages) > 20
    lacking = {page.name: missing(page) for page in pages}
    assert {name: found for name, found in lacking.items() if found} == {}


@pytest.mark.slow
def test_a_page_runs_its_python_from_the_disk(reader):
    exercises = exercises_of(reader.top / "course/book/devices.ipynb")
    answers = {e.name: [e.stub, f"{e.stub}\n{e.solution}"] for e in exercises}
    page = (reader.top / "site/book/devices.html").as_uri()
    words = ("node", "--input-type=module", "-e", SOLVE)
    status, said = reader.run(*words, page, json.dumps(answers))
    assert status == 0, said
    open_, solved = said.splitlines()[::2], said.splitlines()[1::2]
    assert open_
    assert all(" Not yet: " in line for line in open_), said
    assert all(" Solved." in line for line in solved), said
    assert len(open_) == len(solved)


@pytest.mark.slow
def test_dpkit_and_its_data_are_those_of_the_archive(reader):
    code = (
        "import dpkit, dpbook; print(dpkit.__file__, dpbook.__file__)\n"
        "from dpbook.common.datasets import load_fashion_mnist\n"
        "print(*map(len, load_fashion_mnist()[0]))\n"
    )
    status, said = reader.python("-c", code)
    assert status == 0, said
    assert said.count(str(reader.top.parent / "env")) == 2
    assert "10000 10000" in said


@pytest.mark.slow
@pytest.mark.parametrize("chapter", ["devices", "memory"])
def test_a_students_notebook_runs(reader, chapter):
    status, said = reader.python(
        *"-m nbconvert --to notebook --execute --stdout".split(),
        f"notebooks/{chapter}.ipynb",
    )
    assert status == 0, said[-3000:]
    stored = (reader.top / "notebooks" / f"{chapter}.ipynb").read_text()
    assert '"solution"' not in stored
    assert "not yet" in said  # what the checks say of open stubs


def solved(folder, chapter):
    """Return a student's notebook, with the instructor's solutions."""
    student, instructor = (
        json.loads((folder / who / f"{chapter}.ipynb").read_text())
        for who in ("student", "instructor")
    )
    cells = {cell["id"]: cell for cell in instructor["cells"]}
    for cell in student["cells"]:
        if cell["id"].endswith("-stub"):
            solution = cells[cell["id"].replace("-stub", "-solution")]
            cell["source"] += ["\n\n\n", *solution["source"]]
    return student


@pytest.mark.slow
def test_an_assignment_is_made_filled_in_and_graded(reader, tmp_path):
    said = reader.shell(command("python scripts/teaching/make_assignment.py"))
    folder = reader.top / "course" / said.splitlines()[0]
    same = make(ROOT / "book/overlap.ipynb", "plain", seed=7, build=tmp_path)
    for name in ("student/overlap.ipynb", "instructor/overlap.ipynb"):
        assert (folder / name).read_text() == (same / name).read_text(), name
    submission = reader.top / "course" / "ada.ipynb"
    grade = command("python scripts/teaching/grade_assignment.py")

    submission.write_text(json.dumps(solved(folder, "overlap")))
    assert "ada.ipynb: 3 of 3" in reader.shell(grade)
    shutil.copy(folder / "student" / "overlap.ipynb", submission)
    assert "ada.ipynb: 0 of 3" in reader.shell(grade)
    assert (folder / "marks.csv").read_text().count("ada.ipynb") == 3


def test_a_site_without_its_python_is_refused(tmp_path):
    (tmp_path / "index.html").touch()
    with pytest.raises(ValueError, match=r"missing: .*/live/python\.js"):
        build_archive.pack(ROOT, tmp_path, tmp_path / "a-1.whl", tmp_path)


def test_a_wheel_of_another_commit_is_refused(tmp_path):
    run = ["git", "-c", "user.name=a", "-c", "user.email=a@b.c"]
    for words in ("init -q", "commit -q --allow-empty -m a"):
        subprocess.run([*run, *words.split()], cwd=tmp_path, check=True)
    with pytest.raises(ValueError, match="not one wheel"):
        build_archive.wheel_of(tmp_path)
    (tmp_path / "a").touch()
    subprocess.run([*run, "add", "a"], cwd=tmp_path, check=True)
    with pytest.raises(ValueError, match="changes without a commit"):
        build_archive.wheel_of(tmp_path)
