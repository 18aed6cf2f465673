"""Which pages `make check` opens, by a commit, by a seed, or all of them."""

import json
import subprocess

import pytest

from tests.site.checks.conftest import CHECKS

FIGURE = '<figure class="live" id="live-step">'
EXERCISE = '<div class="exercise-in-page" data-exercise="a" hidden></div>'
SOURCES = [f"_modules/dpkit/{name}.html" for name in "abcdefgh"]
PRINTED = "print-the-three-ways.html"
CHAPTERS = {"batch-norm": FIGURE, "memory": EXERCISE, "limits": ""}
PAGES = {f"book/{name}.html": text for name, text in CHAPTERS.items()}
PAGES |= dict.fromkeys(
    [
        *("404.html", "book/about.html", "book/api.html", PRINTED),
        *("book/api-simulated.html", "book/api-runs.html"),
        *("search.html", *SOURCES),
    ],
    "",
)
OPENED = sorted({*PAGES} - {*SOURCES[1:7]})


def git(root, *words):
    run = ["git", "-C", root, "-c", "user.name=a", "-c", "user.email=a@b.c"]
    subprocess.run([*run, *words], check=True, capture_output=True)


@pytest.fixture
def root(tmp_path):
    """Return a repository of two commits, with a built site."""
    site = tmp_path / "_build" / "html"
    for name, text in PAGES.items():
        page = site / name
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(text)
    (tmp_path / ".gitignore").write_text("_build\n")
    git(tmp_path, "init", "-q")
    for _ in range(2):
        git(tmp_path, "add", ".")
        git(tmp_path, "commit", "-q", "--allow-empty", "-m", "a")
    return tmp_path


@pytest.fixture
def choose(root, said_by):
    """Return a function that gives the choice, as main.mjs does."""

    def give(**environment):
        source = f"""
            import {{ choose }} from "{CHECKS.as_uri()}/choice.mjs";
            import {{ pagesOf }} from "{CHECKS.as_uri()}/site.mjs";
            const site = "{root}/_build/html";
            console.log(JSON.stringify(choose("{root}", site, pagesOf(site),
              {json.dumps(environment)})));
        """
        return json.loads(said_by(source))

    return give


def change(root, name):
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("new")


def test_all_are_opened_but_of_pages_of_source_each_seventh(choose):
    assert choose() == {"chosen": OPENED, "why": "all"}


def test_three_seeds_in_a_row_open_all_pages_but_the_printed_one_once(choose):
    thirds = [choose(SEED=str(seed))["chosen"] for seed in (7, 8, 9)]
    seen = sorted(page for third in thirds for page in third)
    assert seen == [page for page in OPENED if page != PRINTED]
    assert choose(SEED="10")["chosen"] == thirds[0]
    assert sorted(len(third) for third in thirds) == [3, 4, 4]
    # What runs Python takes the longest: no third has two of these.
    assert all(
        len({"book/batch-norm.html", "book/memory.html"} & {*third}) < 2
        for third in thirds
    )


@pytest.mark.parametrize(
    ("name", "pages"),
    [
        ("book/limits.ipynb", ["book/limits.html", "search.html"]),
        ("book/about.md", ["book/about.html", "search.html"]),
        ("book/dpbook/batch_norm/runs.py", ["book/batch-norm.html"]),
        ("dpkit/c.py", ["_modules/dpkit/c.html", "book/api.html"]),
        ("dpkit/h/__init__.py", ["_modules/dpkit/h.html", "book/api.html"]),
        ("dpkit/sim/c.py", ["book/api-simulated.html"]),
        ("dpkit/runs/d/e.py", ["book/api-runs.html"]),
        (
            "book/dpbook/explore/step.py",
            ["book/batch-norm.html", "book/memory.html"],
        ),
        (
            "tests/book/wrong_answers/memory.py",
            ["book/batch-norm.html", "book/memory.html"],
        ),
        ("tests/book/test_gantt.py", []),
        ("scripts/check/words.py", []),
        ("scripts/pages/serve.py", []),
        *((name, OPENED) for name in (
            "book/_static/book.css",
            "book/_extensions/head.py",
            "book/_templates/layout.html",
            "scripts/check/axe.mjs",
            "scripts/pages/build_site.py",
            "scripts/pages/search_index.py",
            "_config.yml",
        )),
    ],
)  # fmt: skip
@pytest.mark.parametrize("is_committed", [True, False])
def test_what_differs_from_a_commit_is_opened(
    root, choose, name, pages, is_committed
):
    change(root, name)
    if is_committed:
        git(root, "add", ".")
        git(root, "commit", "-q", "-m", "b")
    found = choose(SINCE="HEAD~1", SEED="0")
    assert found["chosen"] == pages
    told = f"all, as {name} differs from HEAD~1"
    if pages != OPENED:
        names = " ".join(pages) or "none"
        told = f"what differs from HEAD~1: {names}"
    assert found["why"] == told


def test_by_a_seed_all_are_opened_where_what_looks_at_them_differs(
    root, choose
):
    change(root, "scripts/check/axe.mjs")
    assert choose(SEED="0")["chosen"] == OPENED


def test_without_a_commit_before_the_last_all_are_opened(root, choose):
    git(root, "update-ref", "-d", "HEAD")
    found = choose(SEED="0")
    assert found["chosen"] == OPENED
    assert found["why"] == "all, as there is no commit before the last"


@pytest.mark.parametrize(
    ("environment", "fault"),
    [
        ({"SINCE": "nowhere"}, "no such commit (SINCE: nowhere)"),
        ({"SEED": "-1"}, "no whole number (SEED: -1)"),
        ({"SEED": "b"}, "no whole number (SEED: b)"),
    ],
)
def test_what_is_not_there_is_refused(choose, environment, fault):
    assert choose(**environment) == {"fault": fault}
