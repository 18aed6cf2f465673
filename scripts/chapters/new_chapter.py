"""Make a chapter that passes all checks, to be rewritten.

Usage: python scripts/chapters/new_chapter.py fancy-name

The notebook, the check of its exercise and the test of that check are made of
the files in `scripts/chapters/template`. The chapter is put into the contents,
the map on the front page and the index of exercises, and its cells are run. If
a step fails, all is as it was.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from keyword import iskeyword
from pathlib import Path

import yaml

ROOT = Path(__file__).parent.parent.parent
TEMPLATES = Path(__file__).parent / "template"
# In the cell that fetches dpkit.
ADDRESS = re.compile(r'(?<=address, version = ")[^"]*')
NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
LONGEST = 24  # so that lines that hold it keep to their 79 columns

CARD = """
:::{{grid-item-card}}
**{{doc}}`{name}`**

the time of a product, predicted and measured

*needs* {{doc}}`devices`; *takes* 5 minutes to read, 15 to do
:::
"""
INDEXED = """
## {{doc}}`{name}`

- {{ref}}`ex-{name}-rate`\\
  `{module}_rate`: the rate that a product reaches, all its costs included
"""


def check_name(root: Path, name: str) -> None:
    """Refuse a name that is no name of a page, or is taken.

    Raises:
        ValueError: The name cannot be used.
    """
    fits = NAME.fullmatch(name) and len(name) <= LONGEST
    if not fits or iskeyword(name):
        raise ValueError(
            f"not the name of a chapter (name: {name!r})\n"
            f"Use small letters, digits and hyphens, {LONGEST} at most: "
            "make new-chapter NAME=fancy-name"
        )
    for path in made(root, name):
        for taken in (path, path.with_suffix(".md")):
            if taken.exists():
                raise ValueError(
                    "there is a chapter of this name (name: "
                    f"{name!r}, file: {taken.relative_to(root)})\n"
                    "Choose another, or remove the old one first."
                )


def made(root: Path, name: str) -> list[Path]:
    """Return the files that a chapter consists of."""
    module = name.replace("-", "_")
    return [
        root / "book" / f"{name}.ipynb",
        root / "book/dpbook" / module / "__init__.py",
        root / "book/dpbook" / module / "check.py",
        root / "tests/book" / f"test_checks_{module}.py",
        root / "tests/book/wrong_answers/with_torch" / f"{module}.py",
    ]


def filled(template: Path, name: str) -> str:
    """Return the text of a template, with the chapter's name in it."""
    text = template.read_text(encoding="utf-8")
    text = text.replace("New chapter", name.replace("-", " ").capitalize())
    text = text.replace("new_chapter", name.replace("-", "_"))
    return text.replace("new-chapter", name)


def notebook(root: Path, name: str) -> str:
    """Return the notebook; its first cell fetches dpkit from the address."""
    config = yaml.safe_load((root / "_config.yml").read_text("utf-8"))
    found = json.loads(filled(TEMPLATES / "new-chapter.ipynb", name))
    if address := config["repository"]["url"]:
        (setup,) = [c for c in found["cells"] if c["id"] == f"{name}-setup"]
        source = "".join(setup["source"])
        setup["source"] = ADDRESS.sub(lambda _: address, source)
    return json.dumps(found, indent=1, ensure_ascii=False) + "\n"


# For each file that lists the chapters: what is before its list, what ends the
# list, and what is put before that end.
LISTS = {
    "_toc.yml": (
        "  - caption: What may change\n",
        r"  - caption: |\Z",
        "      - file: book/{name}\n",
    ),
    "book/index.ipynb": ("**What may change.**", r'    "::::\\n",\n', CARD),
    "book/exercises.md": ("", r"\Z", INDEXED),
}


def with_chapter(file: str, text: str, name: str) -> str:
    """Return the text of a file that lists the chapters, with one more."""
    first, end, new = LISTS[file]
    new = new.format(name=name, module=name.replace("-", "_"))
    if file.endswith(".ipynb"):
        lines = map(json.dumps, new.splitlines(keepends=True))
        new = "".join(f"    {line},\n" for line in lines)
    start = text.find(first) + len(first)
    found = re.compile(end).search(text, start)
    if first not in text or not found:
        raise ValueError(f"no place for a chapter is found (file: {file})")
    return text[: found.start()] + new + text[found.start() :]


def one_more(match: re.Match[str]) -> str:
    """Count one exercise more."""
    return f"The {int(match[1]) + 1} exercises"


def texts(root: Path, name: str) -> dict[Path, str]:
    """Return what each file is to hold, new ones and changed ones."""
    page, room, check, test, wrong = made(root, name)
    found = {
        page: notebook(root, name),
        room: f'"""What the chapter ``{name}`` alone needs."""\n',
        check: filled(TEMPLATES / "new_chapter.py", name),
        test: filled(TEMPLATES / "test_checks_new_chapter.py", name),
        wrong: filled(TEMPLATES / "wrong_answers.py", name),
    }
    for file in LISTS:
        text = (root / file).read_text(encoding="utf-8")
        text = re.sub(r"The (\d+) exercises", one_more, text, count=1)
        found[root / file] = with_chapter(file, text, name)
    return found


def finish(root: Path, name: str) -> None:
    """Sort imports, wrap lines, run the cells.

    Raises:
        subprocess.CalledProcessError: A step failed.
    """
    sources = made(root, name)
    ruff = [sys.executable, "-m", "ruff"]
    run = [sys.executable, root / "scripts/execute_notebooks.py"]
    for command in (
        [*ruff, "check", "--quiet", "--select", "I", "--fix", *sources],
        [*ruff, "format", "--quiet", *sources],
        [*run, sources[0]],
    ):
        path = os.pathsep.join([str(root), str(root / "book")])
        environment = os.environ | {"PYTHONPATH": path}
        subprocess.run(command, check=True, cwd=root, env=environment)


def make(root: Path, name: str) -> list[Path]:
    """Make the chapter; return the files written. On error, leave none.

    Raises:
        ValueError: The name cannot be used.
        subprocess.CalledProcessError: Its cells do not run.
    """
    check_name(root, name)
    new = texts(root, name)
    before = {p: p.read_bytes() if p.exists() else None for p in new}
    try:
        for path, text in new.items():
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        finish(root, name)
    except BaseException:
        for path, old in before.items():
            if old is None:
                path.unlink(missing_ok=True)
            else:
                path.write_bytes(old)
        shutil.rmtree(made(root, name)[1].parent, ignore_errors=True)
        raise
    return list(new)


def main() -> int:
    """Make the chapter named on the command line; say what to edit."""
    try:
        written = make(ROOT, sys.argv[1] if len(sys.argv) > 1 else "")
    except (ValueError, subprocess.CalledProcessError) as error:
        print(error, file=sys.stderr)
        return 1
    for path in written:
        print(path.relative_to(ROOT))
    print("Rewrite these; book/README.md tells how a chapter is made.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
