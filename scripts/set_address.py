"""Write the repository's public address where it belongs.

Usage: python scripts/set_address.py https://github.com/OWNER/NAME

That is `repository.url` in `_config.yml`, from which the buttons of the pages
derive, and `repository-code` in `CITATION.cff`. It is also the first cell of
each notebook, which fetches dpkit where it is not installed. The script may be
run again, also with another address.
"""

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
IN_CELL = re.compile(r"(address, version = \W+)https://[\w./-]+")
CITED = re.compile(r"(?m)^repository-code: .*\n")


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


def changes(root: Path, address: str) -> dict[Path, str]:
    """Return the new text of each file that holds the address."""
    config = root / "_config.yml"
    cited = root / "CITATION.cff"
    texts = {p: p.read_text("utf-8") for p in [config, cited]}
    texts[config], count = CONFIG.subn(rf'\1"{address}"', texts[config])
    if count != 1:
        raise ValueError(f"no place for the address (file: {config.name})")
    line = f'repository-code: "{address}"\n'
    texts[cited] = CITED.sub("", texts[cited]).rstrip("\n") + "\n" + line
    for notebook in sorted(root.glob("book/*.ipynb")):
        text = notebook.read_text(encoding="utf-8")
        texts[notebook] = IN_CELL.sub(rf"\g<1>{address}", text)
    return texts


def main() -> int:
    """Change the files; say which."""
    try:
        address = check(sys.argv[1] if len(sys.argv) > 1 else "")
        texts = changes(ROOT, address)
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
