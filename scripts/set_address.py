"""Write the repository's public address, and the authors of the book.

Usage: python scripts/set_address.py https://github.com/OWNER/NAME
           [--pages https://…/] [--authors "ONE; ANOTHER"] [--contact ADDRESS]

The address is `repository.url` in `_config.yml`, from which the buttons of the
pages derive, and `repository-code` in `CITATION.cff`. It is also the first
cell of each notebook, which fetches dpkit where it is not installed, and what
the package index shows as links, in `pyproject.toml`. The pages have an
address too, `html.baseurl`: that of GitHub's or GitLab's pages, if no other is
given.

The authors, and an e-mail or web address by which they can be reached, stand
in `CITATION.cff`. In a terminal the script asks for what is not given;
an empty answer leaves what is there. Where else an author is named, the names
of `CITATION.cff` are written.

The script may be run again, also with another address.
"""

import argparse
import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
ADDRESS = re.compile(r"https://(github|gitlab)\.com/[\w.-]+/[\w.-]+")
FORM = "https://github.com/OWNER/NAME"
# The address until one is set: a name that nobody can take.
PLACEHOLDER = "https://unset.invalid/OWNER/NAME"

# The first cell of each notebook. A plain notebook names a commit in place of
# HEAD: book/_extensions/plain_notebooks.py.
SETUP = """\
# Where dpkit is not installed, as on Colab, this fetches it with the records,
# and installs it. A torch that will be installed, too, is named before.
from importlib.util import find_spec

if find_spec("dpkit") is None:
    address, version = "{address}", "HEAD"
    !git init --quiet dpkit-book
    !git -C dpkit-book fetch --quiet --depth 1 {{address}} {{version}}
    !git -C dpkit-book checkout --quiet FETCH_HEAD
    %run dpkit-book/scripts/install_in_notebook.py
    !cp -r dpkit-book/book/_data dpkit-book/book/elsewhere .
"""

# For each file, what stands around the address.
CONFIG = re.compile(r'(?m)^(  url: )"[^"\n]*"')
PAGES = re.compile(r'(?m)^(  baseurl: )"[^"\n]*"')
IN_CELL = re.compile(r"(address, version = \W+)https://[\w./-]+")
CITED = re.compile(r"(?m)^repository-code: .*\n")
LINKS = re.compile(r"(?m)^\[project\.urls\]\n(?:\w.*\n)+\n")
BELOW_LINKS = "[project.scripts]\n"  # the table that they stand above
HOSTS = {"github": "github.io", "gitlab": "gitlab.io"}  # of pages

# The authors: a list in CITATION.cff, and a line in other files.
AUTHORS = re.compile(r"(?m)^authors:\n((?: .*\n)+)")
CONTACT = re.compile(r"(?m)^contact:\n(?: .*\n)+")
NAME = re.compile(r"(?m)^  - name: (.*)$")
NAMED = {
    "_config.yml": re.compile(r"(?m)^(author: ).*()$"),
    "pyproject.toml": re.compile(r"(?m)^(authors = \[).*(\])$"),
    "README.md": re.compile(r"(CC BY 4\.0\. By )[^;]*(; see\b)"),
    "book/about.md": re.compile(r"(?m)^(  author  = \{\{).*(\}\},)$"),
}
EMAIL = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")


def check(address: str) -> str:
    """Return the address without a slash or `.git` at its end.

    Raises:
        ValueError: It is not that of a repository on GitHub or GitLab.
    """
    address = address.rstrip("/").removesuffix(".git")
    if not ADDRESS.fullmatch(address):
        raise ValueError(
            f"not the address of a repository (address: {address!r})\n"
            f"It has the form {FORM}."
        )
    return address


def pages_of(address: str) -> str:
    """Return where the host of a repository publishes its pages.

    The pages of https://github.com/Some/book are at
    https://some.github.io/book/, for instance.
    """
    host = ADDRESS.fullmatch(address)[1]
    owner, name = address.rsplit("/", 2)[1:]
    site = f"{owner.lower()}.{HOSTS[host]}"
    return f"https://{site}/" + ("" if name.lower() == site else f"{name}/")


def with_links(project: str, address: str, pages: str) -> str:
    """Return the text of `pyproject.toml` with the links of the project."""
    files = f"{address}/-" if "//gitlab." in address else address
    links = {
        "Book": pages,
        "Source": address,
        "Issues": f"{files}/issues",
        "Changes": f"{files}/blob/HEAD/CHANGELOG.md",
    }
    lines = [f'{name} = "{link}"\n' for name, link in links.items()]
    table = "[project.urls]\n" + "".join(lines) + "\n"
    project = LINKS.sub("", project)
    return project.replace(BELOW_LINKS, table + BELOW_LINKS)


def cited_authors(citation: str) -> list[str]:
    """Return the names of the authors in the text of `CITATION.cff`."""
    names = NAME.findall(AUTHORS.search(citation)[1])
    return [json.loads(x) if x.startswith('"') else x for x in names]


def with_people(citation: str, authors: list[str], contact: str) -> str:
    """Return the text of `CITATION.cff` with authors and a contact.

    Args:
        citation: The text. It keeps what is not given.
        authors: Their names.
        contact: An e-mail address, or one that begins with "https://".

    Raises:
        ValueError: the contact is neither.
    """
    if authors:
        # A string of JSON is one of YAML.
        lines = [
            f"  - name: {json.dumps(name, ensure_ascii=False)}\n"
            for name in authors
        ]
        citation = AUTHORS.sub(
            lambda _: "authors:\n" + "".join(lines), citation
        )
    if contact:
        kind = "email" if EMAIL.fullmatch(contact) else "website"
        if kind == "website" and not contact.startswith("https://"):
            raise ValueError(
                f"not an address to write to (contact: {contact!r})\n"
                "It is an e-mail address, or begins with https://."
            )
        entry = f"contact:\n  - name: the authors\n    {kind}: {contact}\n"
        citation = CONTACT.sub("", citation).rstrip("\n") + "\n" + entry
    return citation


def with_names(file: str, text: str, names: list[str]) -> str:
    """Return the text of a file of `NAMED` with the names of the authors."""
    said = written_names(file, names)
    return NAMED[file].sub(lambda found: found[1] + said + found[2], text)


def written_names(file: str, names: list[str]) -> str:
    """Return how a file writes the names of the authors."""
    if file == "pyproject.toml":
        quoted = (json.dumps(name, ensure_ascii=False) for name in names)
        return ", ".join(f"{{ name = {name} }}" for name in quoted)
    return (" and " if file == "book/about.md" else ", ").join(names)


def changes(
    root: Path,
    address: str,
    pages: str = "",
    authors: list[str] | None = None,
    contact: str = "",
) -> dict[Path, str]:
    """Return the new text of each file that holds the address or a name.

    Args:
        root: The folder of the repository.
        address: Of the repository.
        pages: The address of the pages, if it is not that of the host.
        authors: Names to be written; None for those that are there.
        contact: An address to write to; empty for the one that is there.
    """
    config = root / "_config.yml"
    cited = root / "CITATION.cff"
    files = [config, cited, *(root / name for name in NAMED)]
    texts = {p: p.read_text("utf-8") for p in files if p.exists()}
    pages = pages.rstrip("/") + "/" if pages else pages_of(address)
    for place, value in ((CONFIG, address), (PAGES, pages)):
        texts[config], count = place.subn(rf'\1"{value}"', texts[config])
        if count != 1:
            raise ValueError(f"no place for the address (file: {config.name})")
    text = with_people(texts[cited], authors or [], contact)
    line = f'repository-code: "{address}"\n'
    texts[cited] = CITED.sub("", text).rstrip("\n") + "\n" + line
    names = cited_authors(texts[cited])
    for name in NAMED:
        if root / name in texts:
            texts[root / name] = with_names(name, texts[root / name], names)
    project = root / "pyproject.toml"
    if project in texts:
        texts[project] = with_links(texts[project], address, pages)
    for notebook in sorted(root.glob("book/*.ipynb")):
        text = notebook.read_text(encoding="utf-8")
        texts[notebook] = IN_CELL.sub(rf"\g<1>{address}", text)
    return texts


def answer(given: str, question: str) -> str:
    """Return what was given, or what a reader at a terminal answers."""
    if given or not sys.stdin.isatty():
        return given
    return input(f"{question} (empty: no change) ").strip()


def main() -> int:
    """Change the files; say which."""
    parser = argparse.ArgumentParser(prog="set_address.py")
    parser.add_argument("address", nargs="?", default="")
    for option in ("--pages", "--authors", "--contact"):
        parser.add_argument(option, default="")
    given = parser.parse_args()
    try:
        address = check(given.address)
        authors = answer(
            given.authors, "By whom? Names, with ';' between them"
        )
        contact = answer(given.contact, "How to reach them? An address")
        names = [name.strip() for name in authors.split(";") if name.strip()]
        texts = changes(ROOT, address, given.pages, names, contact)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    for path, text in texts.items():
        if path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(f"{path.relative_to(ROOT)}: {address}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
