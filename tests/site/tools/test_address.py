"""One command writes the repository's address; the pages lead there."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from types import SimpleNamespace

import pytest
import repository_links as links
import set_address as address
import yaml

from tests.repository import ROOT

NOTEBOOKS = sorted(ROOT.glob("book/*.ipynb"))
NEW = "https://github.com/some/book"


@pytest.fixture
def copy(tmp_path, monkeypatch):
    """Give a folder with the files that name the address or an author."""
    shutil.copytree(ROOT / "book", tmp_path / "book")
    for name in address.AUTHORS_IN:
        shutil.copy(ROOT / name, tmp_path / name)
    monkeypatch.setattr(address, "ROOT", tmp_path)
    return tmp_path


def run(monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["set_address.py", *words])
    return address.main()


def test_all_places_are_written_and_nothing_else(copy, monkeypatch, capsys):
    names = [f"book/{path.name}" for path in NOTEBOOKS]
    three = ["_config.yml", "CITATION.cff", "pyproject.toml"]
    people = "Ada Lovelace and Grace Hopper"
    for words, changed in (
        ([NEW + ".git/"], [*three, *names]),
        ([NEW], []),
        (["https://gitlab.com/Other/book"], [*three, *names]),
        ([NEW, "--pages", "https://book.org"], [*three, *names]),
        ([NEW, "--authors", people], [*address.AUTHORS_IN]),
    ):
        assert run(monkeypatch, *words) == 0
        said = capsys.readouterr().out.splitlines()
        assert {line.partition(":")[0] for line in said} == {*changed}
    for path in [*copy.glob("book/*.ipynb"), copy / "_config.yml"]:
        text = path.read_text(encoding="utf-8")
        assert NEW in text
        assert "gitlab.com/Other" not in text
    before, after = (
        json.loads((root / names[0]).read_text("utf-8"))["cells"]
        for root in (ROOT, copy)
    )
    assert sum(a != b for a, b in zip(before, after, strict=True)) == 1
    cited = yaml.safe_load((copy / "CITATION.cff").read_text("utf-8"))
    assert cited["repository-code"] == NEW
    assert cited["authors"] == [{"name": people}]
    config = yaml.safe_load((copy / "_config.yml").read_text("utf-8"))
    assert config["author"] == people
    assert config["html"]["baseurl"] == "https://some.github.io/book/"
    project = tomllib.loads((copy / "pyproject.toml").read_text("utf-8"))
    assert project["project"]["urls"]["Source"] == NEW
    assert project["project"]["authors"] == [{"name": people}]
    for name in address.AUTHORS_IN:
        text = (copy / name).read_text("utf-8")
        assert people in text
        assert "the dpkit authors" not in text


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


@pytest.mark.parametrize(
    "words",
    [
        [""],
        ["some/book"],
        ["http://github.com/a/b"],
        ["https://x.org/a/b"],
        [NEW + "/c"],
        [NEW, "--authors", 'Ada "A" Lovelace'],
    ],
)
def test_what_cannot_be_written_is_refused_by_name(words, monkeypatch, capsys):
    assert run(monkeypatch, *words) == 1
    assert f": {words[-1]!r})" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("url", "base", "launchers", "site"),
    [
        ("", "", set(), ""),
        (NEW, "", {"colab_url", "binderhub_url", "notebook_interface"},
         "https://some.github.io/book/"),
        ("https://gitlab.com/a/b", "",
         {"binderhub_url", "notebook_interface"}, ""),
        ("https://gitlab.com/a/b", "https://x.org/b",
         {"binderhub_url", "notebook_interface"}, "https://x.org/b/"),
    ],
)  # fmt: skip
def test_buttons_and_pages_derive_from_the_address(url, base, launchers, site):
    config = SimpleNamespace(
        html_theme_options={"repository_url": url},
        html_baseurl=base,
        notebooks_branch="",
    )
    links.add_buttons(None, config)
    options = config.html_theme_options
    assert options["use_repository_button"] == bool(url)
    assert set(options["launch_buttons"]) == launchers
    assert links.published_site(config) == site


@pytest.mark.weekly
@pytest.mark.parametrize("branch", ["", "plain"])
def test_the_buttons_open_the_notebook_itself(copy, monkeypatch, branch):
    run(monkeypatch, NEW)
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
    command = [sys.executable, "-P", "-c", program, "build", copy, "--quiet"]
    subprocess.run(command, check=True)
    built = copy / "_build" / "html"
    html = (built / "book" / "splitting.html").read_text(encoding="utf-8")
    path = f"{branch or 'main'}?urlpath=lab/tree/book/splitting.ipynb"
    blob = f"blob/{branch or 'main'}/book/splitting.ipynb"
    site = "https://some.github.io/book"
    page = f"{site}/book/splitting.html"
    for part in (
        f'href="https://colab.research.google.com/github/some/book/{blob}"',
        f'href="https://mybinder.org/v2/gh/some/book/{path}"',
        'href="../_sources/book/splitting.ipynb"',  # to download
        f'<link rel="canonical" href="{page}" />',
        f'<meta property="og:url" content="{page}" />',
        f'<meta property="og:image" content="{site}/_static/preview.png" />',
    ):
        assert part in html
    sitemap = (built / "sitemap.xml").read_text("utf-8")
    assert re.findall("<loc>(.*)</loc>", sitemap) == [
        f"{site}/book/index.html",
        page,
    ]
    lost = (built / "404.html").read_text("utf-8")
    assert 'href="/book/book/splitting.html"' in lost
    assert "canonical" not in lost
    given = (built / "_sources/book/splitting.ipynb").read_text("utf-8")
    assert f"[the page of the chapter]({page})" in given
    assert re.search(rf"\[Fig\. \d\]\({page}#fig-sp-ways\)", given)
    assert f"[On its page]({page}#live-decision)" in given
