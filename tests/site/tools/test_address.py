"""One command writes the repository's address; the pages lead there."""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from types import SimpleNamespace

import pytest
import repository_links as links
import set_address as address
import yaml
from plain_notebooks import plain, revision_of

from tests.repository import ROOT

NOTEBOOKS = sorted(ROOT.glob("book/*.ipynb"))
NEW = "https://github.com/some/book"


def first_code_cell(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return next(cell for cell in cells if cell["cell_type"] == "code")


def written():
    """Return the address that `_config.yml` holds, or the placeholder."""
    config = (ROOT / "_config.yml").read_text(encoding="utf-8")
    return re.search(r'(?m)^  url: "(.*)"', config)[1] or address.PLACEHOLDER


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_first_cell_fetches_dpkit_from_the_one_address(path):
    cell = first_code_cell(path)
    source = "".join(cell["source"]) + "\n"
    assert source == address.SETUP.format(address=written())
    assert cell["metadata"]["tags"] == ["remove-cell"]
    assert cell["outputs"] == []


@pytest.fixture
def copy(tmp_path):
    shutil.copytree(ROOT / "book", tmp_path / "book")
    for name in ("_config.yml", "CITATION.cff"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def set_to(root, url):
    """Write the address; return which files changed."""
    changed = []
    for path, text in address.changes(root, address.check(url)).items():
        if path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            changed.append(path.name)
    return changed


def test_all_places_are_written_and_nothing_else(copy):
    names = [path.name for path in NOTEBOOKS]
    assert set_to(copy, NEW + ".git/") == [
        *("_config.yml", "CITATION.cff"),
        *names,
    ]
    assert set_to(copy, NEW) == []
    other = "https://gitlab.com/another/book"
    assert len(set_to(copy, other)) == 2 + len(names)
    for path in [*copy.glob("book/*.ipynb"), copy / "_config.yml"]:
        text = path.read_text(encoding="utf-8")
        assert other in text
        assert NEW not in text
    cited = (copy / "CITATION.cff").read_text(encoding="utf-8")
    assert cited.count("repository-code") == cited.count(other) == 1
    before = json.loads((ROOT / "book" / names[0]).read_text("utf-8"))
    after = json.loads((copy / "book" / names[0]).read_text("utf-8"))
    different = [
        i for i, cells in enumerate(zip(before["cells"], after["cells"]))
        if cells[0] != cells[1]
    ]  # fmt: skip
    assert len(different) == 1


@pytest.mark.parametrize(
    ("url", "pages"),
    [
        (NEW, "https://some.github.io/book/"),
        ("https://gitlab.com/Some/book", "https://some.gitlab.io/book/"),
        ("https://github.com/some/some.github.io", "https://some.github.io/"),
    ],
)
def test_the_address_of_the_pages_derives_from_the_repository(url, pages):
    assert address.pages_of(url) == pages


def test_another_address_of_the_pages_can_be_given(copy):
    texts = address.changes(copy, NEW, pages="https://book.org")
    assert 'baseurl: "https://book.org/"' in texts[copy / "_config.yml"]


def test_authors_are_written_wherever_they_are_named(copy):
    for name in ("README.md", "pyproject.toml"):
        shutil.copy(ROOT / name, copy)
    names = ['Ada "A" Lovelace', "Grace Hopper"]
    texts = address.changes(copy, NEW, authors=names, contact="ada@x.org")
    cited = yaml.safe_load(texts[copy / "CITATION.cff"])
    assert [author["name"] for author in cited["authors"]] == names
    assert cited["contact"] == [{"name": "the authors", "email": "ada@x.org"}]
    assert (
        f"  author  = {{{{{' and '.join(names)}}}}}"
        in (texts[copy / "book/about.md"])
    )
    project = tomllib.loads(texts[copy / "pyproject.toml"])["project"]
    assert [author["name"] for author in project["authors"]] == names
    links = project["urls"]
    assert links["Source"] == NEW
    assert links["Book"] == address.pages_of(NEW)
    assert links["Changes"].endswith("/blob/HEAD/CHANGELOG.md")
    config = yaml.safe_load(texts[copy / "_config.yml"])
    assert config["author"] == ", ".join(names)
    assert (
        f"CC BY 4.0. By {', '.join(names)}; see" in (texts[copy / "README.md"])
    )
    assert "the dpkit authors" not in "".join(texts.values())


def test_links_of_the_package_are_written_again_and_not_twice():
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    once = address.with_links(project, NEW, "https://book.org/")
    again = address.with_links(once, "https://gitlab.com/a/b", "https://b.org")
    links = tomllib.loads(again)["project"]["urls"]
    assert links["Issues"] == "https://gitlab.com/a/b/-/issues"
    assert address.with_links(again, NEW, "https://book.org/") == once


def test_people_stay_where_none_are_given(copy):
    (copy / "CITATION.cff").write_text(
        address.with_people(
            (copy / "CITATION.cff").read_text("utf-8"),
            ["Ada"],
            "https://x.org/write",
        )
    )
    texts = address.changes(copy, NEW)
    cited = yaml.safe_load(texts[copy / "CITATION.cff"])
    assert cited["authors"] == [{"name": "Ada"}]
    assert cited["contact"][0]["website"] == "https://x.org/write"
    assert yaml.safe_load(texts[copy / "_config.yml"])["author"] == "Ada"


def test_what_nobody_can_write_to_is_refused(copy):
    with pytest.raises(ValueError, match="not an address to write to"):
        address.changes(copy, NEW, contact="call me")


def test_at_a_terminal_the_script_asks(monkeypatch):
    asked = []

    def answer(question):
        asked.append(question)
        return " Ada "

    monkeypatch.setattr("builtins.input", answer)
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    assert address.answer("", "By whom?") == ""
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    assert address.answer("Grace", "By whom?") == "Grace"
    assert asked == []
    assert address.answer("", "By whom?") == "Ada"
    assert asked == ["By whom? (empty: no change) "]


@pytest.mark.parametrize(
    "url",
    [
        "",
        "some/book",
        "http://github.com/a/b",
        "https://x.org/a/b",
        NEW + "/c",
    ],
)
def test_what_is_no_address_is_refused_by_name(url):
    with pytest.raises(ValueError, match=r"not the address") as caught:
        address.check(url)
    assert repr(url.rstrip("/")) in str(caught.value)


@pytest.mark.parametrize(
    ("url", "launchers"),
    [
        ("", set()),
        (NEW, {"colab_url", "binderhub_url", "notebook_interface"}),
        ("https://gitlab.com/a/b", {"binderhub_url", "notebook_interface"}),
    ],
)
def test_buttons_derive_from_the_address(url, launchers):
    config = SimpleNamespace(
        html_theme_options={"repository_url": url}, notebooks_branch=""
    )
    links.add_buttons(None, config)
    options = config.html_theme_options
    assert options["use_repository_button"] == bool(url)
    assert set(options["launch_buttons"]) == launchers


@pytest.mark.parametrize(
    ("url", "base", "site"),
    [
        ("", "", ""),
        ("https://github.com/Some/book", "", "https://some.github.io/book/"),
        ("https://gitlab.com/a/b", "", ""),
        ("https://gitlab.com/a/b", "https://x.org/b", "https://x.org/b/"),
    ],
)
def test_the_address_of_the_pages_derives_from_that_of_the_repository(
    url, base, site
):
    config = SimpleNamespace(
        html_theme_options={"repository_url": url}, html_baseurl=base
    )
    assert links.published_site(config) == site


@pytest.mark.slow
@pytest.mark.parametrize("branch", ["", "plain"])
def test_the_buttons_open_the_notebook_itself(copy, branch):
    set_to(copy, NEW)
    config = (copy / "_config.yml").read_text(encoding="utf-8")
    line = 'notebooks_branch: "%s"'
    assert line % "" in config
    (copy / "_config.yml").write_text(config.replace(line % "", line % branch))
    for page in [*copy.glob("book/*.ipynb"), *copy.glob("book/*.md")]:
        if page.stem not in ("index", "splitting"):
            page.unlink()
    pages = "format: jb-book\nroot: book/index\nchapters:\n"
    (copy / "_toc.yml").write_text(pages + "- file: book/splitting\n")
    program = "from jupyter_book.cli.main import main; main()"
    tool = [sys.executable, "-P", "-c", program]
    command = [*tool, "build", copy, "--quiet"]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-3000:]
    built = copy / "_build" / "html"
    html = (built / "book" / "splitting.html").read_text(encoding="utf-8")
    path = f"{branch or 'main'}?urlpath=lab/tree/book/splitting.ipynb"
    blob = f"blob/{branch or 'main'}/book/splitting.ipynb"
    for href in (
        f"https://colab.research.google.com/github/some/book/{blob}",
        f"https://mybinder.org/v2/gh/some/book/{path}",
        "../_sources/book/splitting.ipynb",  # to download
    ):
        assert f'href="{href}"' in html
    site = "https://some.github.io/book"
    page = f"{site}/book/splitting.html"
    for tag in (
        f'<link rel="canonical" href="{page}" />',
        f'<meta property="og:url" content="{page}" />',
        f'<meta property="og:image" content="{site}/_static/preview.png" />',
    ):
        assert tag in html
    assert (built / "_static/preview.png").exists()
    sitemap = (built / "sitemap.xml").read_text("utf-8")
    assert re.findall("<loc>(.*)</loc>", sitemap) == [
        f"{site}/book/index.html",
        page,
    ]
    lost = (built / "404.html").read_text("utf-8")
    assert 'href="/book/book/splitting.html"' in lost
    assert "canonical" not in lost
    ours, given = (
        {cell["id"]: cell for cell in json.loads(file.read_text())["cells"]}
        for file in (
            copy / "book/splitting.ipynb",
            built / "_sources/book/splitting.ipynb",
        )
    )
    kept = [name for name in given if not name.endswith("-below")]
    assert kept == [name for name in ours if name in given]
    assert outside_solutions(ours) <= set(given)
    for cell in given.values():
        assert "solution" not in cell["metadata"].get("tags", ())
    text = "".join(line for cell in given.values() for line in cell["source"])
    page = "https://some.github.io/book/book/splitting.html"
    assert f"[the page of the chapter]({page})" in text
    assert re.search(rf"\[Fig\. \d\]\({page}#fig-sp-ways\)", text)
    assert f"[On its page]({page}#live-decision)" in text


def outside_solutions(cells):
    """Return the names of all cells that are no part of a solution."""
    outside, names = True, set()
    for name, cell in cells.items():
        text = "".join(cell["source"])
        if "{solution-start}" in text:
            outside = False
        elif outside:
            names.add(name)
        if "{solution-end}" in text:  # the next exercise may begin here
            outside = "{solution-start}" not in text.rpartition("-end}")[2]
    assert outside
    assert len(names) > 20
    return names


def run_cell(python, source, folder, **environment):
    """Run a cell in the IPython of a Python, in a folder without dpkit."""
    program = (
        "import sys; from IPython.core.interactiveshell import *;"
        "shell = InteractiveShell.instance();"
        "result = shell.run_cell(sys.argv[1]); result.raise_error()"
    )
    # `make test ENV=…` names the clone there, and dpkit would be found in it.
    # IPython looks for packages in an environment that is activated, too.
    there = ("PYTHONPATH", "VIRTUAL_ENV")
    inherited = {k: v for k, v in os.environ.items() if k not in there}
    # In another locale Python does not read a path file with other letters.
    inherited["LC_ALL"] = "C.UTF-8"
    run = subprocess.run(
        [python, "-c", program, source],
        capture_output=True, text=True, env=inherited | environment,
        cwd=folder,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-2000:]
    return run.stdout


@pytest.fixture
def bare(tmp_path_factory):
    """Return a Python that has every package of this one but dpkit.

    A path file makes them importable; the editable dpkit is not, for its own
    path file is only read in the folder of this Python.
    """
    folder = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder],
                   check=True)  # fmt: skip
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "all.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin" / "python"


@pytest.fixture
def clone(tmp_path):
    """Return a repository with what the first cell of a notebook needs."""
    clone = tmp_path / "book"
    shutil.copytree(ROOT / "dpkit", clone / "dpkit")
    for name in ("_data", "dpbook", "elsewhere"):
        shutil.copytree(ROOT / "book" / name, clone / "book" / name)
    (clone / "scripts").mkdir()
    for name in (
        *("pyproject.toml", "requirements.txt", "README.md", "LICENSE"),
        *("scripts/install_in_notebook.py", "scripts/gpu_fits.py"),
    ):
        shutil.copy(ROOT / name, clone / name)
    commit(clone, "init", "-q")
    return clone


def commit(clone, *first):
    """Commit all that is there; return the name of the commit."""
    git = ["git", "-C", clone, "-c", "user.name=a", "-c", "user.email=b"]
    commands = [["add", "--all"], ["commit", "-qm", "a"]]
    for command in [first, *commands] if first else commands:
        subprocess.run([*git, *command], check=True)
    return revision_of(clone)


def offline(clone):
    """Return variables by which git and pip need no network.

    Git finds the clone at the address, and pip builds with the setuptools
    that is there.
    """
    return {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.file://{clone}.insteadOf",
        "GIT_CONFIG_VALUE_0": written(),
        "PIP_NO_BUILD_ISOLATION": "0",
        "PIP_NO_INDEX": "1",
    }


@pytest.fixture
def elsewhere(tmp_path):
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    return folder


def pretend_installed(python, name, version):
    """Have pip and Python find a version before the one that is there."""
    (site,) = python.parent.parent.glob("lib/python*/site-packages")
    about = site / f"{name}-{version}.dist-info"
    about.mkdir()
    facts = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    (about / "METADATA").write_text(facts)
    files = ("METADATA", "RECORD")
    lines = [f"{about.name}/{file},,\n" for file in files]
    (about / "RECORD").write_text("".join(lines))


@pytest.mark.slow
def test_the_first_cell_installs_the_commit_of_its_notebook(
    bare, clone, elsewhere
):
    revision = revision_of(clone)
    (clone / "dpkit/__init__.py").write_text("of a later commit")
    assert commit(clone) != revision
    notebook = json.loads(NOTEBOOKS[0].read_text(encoding="utf-8"))
    cells = plain(notebook, "page", str, revision=revision)["cells"]
    first = next(cell for cell in cells if cell["cell_type"] == "code")
    source = "".join(first["source"])
    assert f', "{revision}"\n' in source
    # These are new enough, and older than those of requirements.txt.
    pretend_installed(bare, "torch", "2.12.0")
    pretend_installed(bare, "torchvision", "0.27.0")
    where = "\nimport dpbook.job, dpkit; print('found', dpkit.__file__)"
    output = run_cell(bare, source + where, elsewhere, **offline(clone))
    # And it says nothing of a torch, which is there.
    assert output.startswith(f"found {bare.parent.parent}")
    # What the cells read by a path is there too.
    assert (elsewhere / "_data" / "headline.json").exists()
    kept = (elsewhere / "torch-here.txt").read_text().split()
    assert kept == ["torch==2.12.0", "torchvision==0.27.0"]


def pretend_wheel(folder, name, version):
    """Write a package with nothing in it, for pip to install."""
    about = f"{name}-{version}.dist-info"
    facts = {
        "METADATA": f"Metadata-Version: 2.1\nName: {name}\n"
        f"Version: {version}\n",
        "WHEEL": "Wheel-Version: 1.0\nGenerator: a\nRoot-Is-Purelib: true\n"
        "Tag: py3-none-any\n",
        "RECORD": "",
    }
    with zipfile.ZipFile(
        folder / f"{name}-{version}-py3-none-any.whl", "w"
    ) as wheel:
        for file, text in facts.items():
            wheel.writestr(f"{about}/{file}", text)


@pytest.mark.slow
def test_the_first_cell_says_which_torch_it_will_install(
    bare, clone, elsewhere
):
    """The torch that is there is too old. Its place gets the pinned one."""
    pretend_installed(bare, "torch", "2.5.0")
    pinned = (ROOT / "requirements.txt").read_text("utf-8")
    wheels = dict(re.findall(r"(?m)^(torch|torchvision)==(\S+)", pinned))
    for name in wheels:
        pretend_wheel(elsewhere, name, wheels[name])
    variables = {**offline(clone), "PIP_FIND_LINKS": str(elsewhere)}
    source = "".join(first_code_cell(NOTEBOOKS[0])["source"])
    said = run_cell(bare, source, elsewhere, **variables).splitlines()
    # When this was said, the old one was there.
    assert said[0].startswith("dpkit needs torch>=2.11 (here: 2.5.0). ")
    assert "interrupt this cell" in said[0]
    assert f"torch-{wheels['torch']}" in said[1].split()
    places = bare.parent.parent.glob("lib/python*/site-packages/torch-*")
    found = [path.name for path in places]
    assert found == [f"torch-{wheels['torch']}.dist-info"]


def test_the_first_cell_does_nothing_where_dpkit_is(tmp_path):
    source = "".join(first_code_cell(NOTEBOOKS[0])["source"])
    assert run_cell(sys.executable, source, tmp_path, PIP_NO_INDEX="1") == ""
