"""Build the files of a release, an sdist and a wheel, and check them.

    python scripts/owner/build_release.py REPOSITORY FOLDER

They are made of the last commit; what is not committed stays out. `python -m
build` makes the wheel of the sdist, so a file that the sdist lacks is missed
here and not by a reader.

The package index shows README.md beside no other file. So the README of the
release names each file and picture by its address, at the tag of the version.
"""

import argparse
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from set_address import PLACEHOLDER

ADDRESS = re.compile(r'(?m)^  url: "([^"]*)"')
VERSION = re.compile(r'(?m)^__version__ = "([^"]+)"$')
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|mailto:|#)([^)\s]+)\)")


def with_addresses(readme: str, address: str, tag: str) -> str:
    """Return the text of a README whose links are addresses.

    Args:
        readme: Markdown whose links name files of the repository.
        address: Of the repository, on GitHub or GitLab.
        tag: Names the commit whose files are meant.
    """
    files = f"{address}/-" if "//gitlab." in address else address

    def lead(link: re.Match[str]) -> str:
        mark, text, path = link.groups()
        kind = "raw" if mark else "blob"
        return f"{mark}[{text}]({files}/{kind}/{tag}/{path})"

    return LINK.sub(lead, readme)


def export(repository: Path, folder: Path) -> Path:
    """Write the files of the last commit to a folder; return their root."""
    archive = folder / "commit.tar"
    subprocess.run(
        ["git", "archive", "--output", archive.absolute(), "HEAD"],
        cwd=repository,
        check=True,
    )
    source = folder / "source"
    with tarfile.open(archive) as tar:
        tar.extractall(source, filter="data")
    return source


def build(repository: Path, folder: Path) -> tuple[str, list[Path]]:
    """Build both files into a folder; return the address, and the files."""
    with tempfile.TemporaryDirectory() as scratch:
        source = export(repository, Path(scratch))
        config = (source / "_config.yml").read_text(encoding="utf-8")
        address = ADDRESS.search(config)[1] or PLACEHOLDER
        package = (source / "dpkit" / "__init__.py").read_text("utf-8")
        tag = "v" + VERSION.search(package)[1]
        readme = source / "README.md"
        text = with_addresses(readme.read_text("utf-8"), address, tag)
        readme.write_text(text, encoding="utf-8")
        maker = [sys.executable, "-m", "build", "--no-isolation"]
        subprocess.run(
            [*maker, "--outdir", folder.absolute(), source], check=True
        )
    return address, sorted(folder.iterdir())


def main() -> int:
    """Build, check, and say what is there."""
    parser = argparse.ArgumentParser(prog="build_release.py")
    parser.add_argument("repository", type=Path)
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    for old in given.folder.iterdir():
        old.unlink()
    address, files = build(given.repository, given.folder)
    checked = subprocess.run(
        [sys.executable, "-m", "twine", "check", "--strict", *files],
        check=False,
    )
    for file in files:
        print(f"{file}: {file.stat().st_size} bytes")
    if address == PLACEHOLDER:
        print(
            f"not to be published: its links lead nowhere ({address})\n"
            "Write the address first: make address URL=https://…"
        )
    return checked.returncode


if __name__ == "__main__":
    sys.exit(main())
