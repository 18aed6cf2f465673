"""Write the repository's public address, and who the book is by.

Usage: python scripts/owner/set_address.py https://github.com/OWNER/NAME
           [--pages https://…/] [--authors "ADA LOVELACE and GRACE HOPPER"]

The pages have an address too: that of GitHub's or GitLab's pages, if no other
is given. The script may be run again, also with another address.
"""

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
ADDRESS = re.compile(r"https://(github|gitlab)\.com/([\w.-]+)/([\w.-]+)")
# The address until one is set: a name that nobody can take.
PLACEHOLDER = "https://unset.invalid/OWNER/NAME"
AUTHOR = re.compile(r"(?m)^  - name: ([\w .,'-]+)$")  # in CITATION.cff
AUTHORS_IN = ("_config.yml", "CITATION.cff", "pyproject.toml", "README.md",
              "book/about.md")  # fmt: skip


def pages_of(address: str) -> str:
    """Return where the host of a repository publishes its pages.

    The pages of https://github.com/Some/book are at
    https://some.github.io/book/, for instance.
    """
    host, owner, name = ADDRESS.fullmatch(address).groups()
    site = f"{owner.lower()}.{host}.io"
    return f"https://{site}/" + ("" if name.lower() == site else f"{name}/")


def changes(
    root: Path, address: str, pages: str = "", authors: str = ""
) -> dict[Path, str]:
    """Return the new text of each file that holds the address or a name.

    Args:
        root: The folder of the repository.
        address: Of the repository.
        pages: The address of the pages, if it is not that of the host.
        authors: Who the book is by; empty for those who are there.
    """
    notebooks = (str(p.relative_to(root)) for p in root.glob("book/*.ipynb"))
    texts = {n: (root / n).read_text("utf-8") for n in AUTHORS_IN}
    texts |= {n: (root / n).read_text("utf-8") for n in sorted(notebooks)}

    def write(name: str, pattern: str, line: str) -> None:
        """Write a line in place of the one that is there, just once."""
        text, count = re.subn(pattern, lambda _: line, texts[name], count=1)
        if not count:
            raise ValueError(f"no place for it (file: {name}, line: {line!r})")
        texts[name] = text

    pages = pages.rstrip("/") + "/" if pages else pages_of(address)
    write("_config.yml", r'(?m)^  url: "[^"\n]*"', f'  url: "{address}"')
    write("_config.yml", r'(?m)^  baseurl: "[^"\n]*"', f'  baseurl: "{pages}"')
    cited = f'repository-code: "{address}"\ntype: '
    write("CITATION.cff", r"(?m)^(repository-code: .*\n)?type: ", cited)
    table = f'[project.urls]\nBook = "{pages}"\nSource = "{address}"\n'
    table += f'Issues = "{address}/issues"\n\n'
    old = r"(?m)^(\[project\.urls\]\n(\w.*\n)+\n)?(?=\[project\.scripts\])"
    write("pyproject.toml", old, table)
    if authors:
        before = AUTHOR.search(texts["CITATION.cff"])[1]
        for name in AUTHORS_IN:
            write(name, rf"\b{re.escape(before)}\b", authors)
    for name in texts:
        if name.endswith(".ipynb"):
            line = f'address, version = \\"{address}\\", '
            write(name, r'address, version = \\"[^"]*", ', line)
    return {root / name: text for name, text in texts.items()}


def main() -> int:
    """Change the files; say which."""
    parser = argparse.ArgumentParser(prog="set_address.py")
    parser.add_argument("address", nargs="?", default="")
    parser.add_argument("--pages", default="")
    parser.add_argument("--authors", default="")
    given = parser.parse_args()
    address = given.address.rstrip("/").removesuffix(".git")
    if not ADDRESS.fullmatch(address):
        print(
            f"not the address of a repository (address: {address!r})\n"
            "It has the form https://github.com/OWNER/NAME.",
            file=sys.stderr,
        )
        return 1
    if given.authors and not AUTHOR.fullmatch(f"  - name: {given.authors}"):
        print(
            f"names need letters (authors: {given.authors!r})\n"
            "Two or more have 'and' between them.",
            file=sys.stderr,
        )
        return 1
    texts = changes(ROOT, address, given.pages, given.authors)
    for path, text in texts.items():
        if path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(f"{path.relative_to(ROOT)}: {address}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
