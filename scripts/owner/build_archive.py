"""Build the archive of a term: one zip for a course, without a network.

    python scripts/owner/build_archive.py REPOSITORY FOLDER

It packs what is built: the site of ``make book`` and the wheel of ``make
release``. To these it adds the images, the chapters, the programs that make
and grade assignments, the exact versions of libraries, and a README that says
how to use them. The zip is written to FOLDER.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from notebooks_branch import refuse_changes

HERE = Path(__file__).parent / "archive"
IMAGES = "book/dpbook/common/data"
IMAGES_LICENCE = "LICENSE.fashion-mnist"
RECORDS = ("_data", "elsewhere")  # in book/; cells read them by a path
# In the folder `course`, at the places that they have in the repository.
COURSE = (
    "book/*.ipynb",
    "book/_extensions/plain_markdown.py",
    "scripts/teaching",
    "tests/book/wrong_answers",
)
UNWANTED = shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints")


def copy(source: Path, target: Path) -> None:
    """Copy a file or a folder; the folders above the target are made."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, ignore=UNWANTED)
    else:
        shutil.copy(source, target)


def build_images(repository: Path, wheels: Path) -> None:
    """Build a wheel of the images, which that of dpkit leaves out."""
    with tempfile.TemporaryDirectory() as name:
        source = Path(name)
        shutil.copy(HERE / "images.toml", source / "pyproject.toml")
        for file in (repository / IMAGES).glob("*.gz"):
            shutil.copy(file, source)
        shutil.copy(repository / IMAGES / IMAGES_LICENCE, source)
        pip = "pip wheel --quiet --no-deps --no-build-isolation --no-index"
        subprocess.run(
            [sys.executable, "-m", *pip.split(), "-w", wheels, source],
            check=True,
        )


def collect(repository: Path, site: Path, wheel: Path, top: Path) -> None:
    """Write all that the archive holds to a new folder.

    Args:
        repository: A clone.
        site: The built site, with the Python for its pages.
        wheel: The wheel of dpkit.
        top: The folder, which is made.
    """
    copy(site, top / "site")
    for notebook in sorted(site.glob("_sources/book/*.ipynb")):
        copy(notebook, top / "notebooks" / notebook.name)
    for name in RECORDS:
        copy(repository / "book" / name, top / "notebooks" / name)
    copy(wheel, top / "wheels" / wheel.name)
    build_images(repository, top / "wheels")
    for pattern in COURSE:
        for path in sorted(repository.glob(pattern)):
            copy(path, top / "course" / path.relative_to(repository))
    copy(HERE / "README.md", top / "README.md")
    for path in ("LICENSE", "requirements.txt", f"{IMAGES}/{IMAGES_LICENCE}"):
        copy(repository / path, top / Path(path).name)


def pack(repository: Path, site: Path, wheel: Path, folder: Path) -> Path:
    """Write the archive to a folder; return the file.

    Args:
        repository: A clone.
        site: The built site.
        wheel: The wheel of dpkit, whose name has the version.
        folder: Where the file is written.

    Raises:
        ValueError: The site is not built, or without the Python for pages.
    """
    for part in ("index.html", "_static/live/python.js"):
        if not (site / part).is_file():
            raise ValueError(
                f"the site is not whole (missing: {site / part})\n"
                "Build it, where there is npm: make book"
            )
    name = "-".join([*wheel.name.split("-")[:2], "term"])
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        collect(repository, site, wheel, Path(scratch, name))
        packed = shutil.make_archive(
            str(folder / name), "zip", root_dir=scratch, base_dir=name
        )
    return Path(packed)


def wheel_of(repository: Path) -> Path:
    """Return the wheel that ``make release`` has built of the last commit.

    Raises:
        ValueError: There is none, or something is not committed.
    """
    refuse_changes(repository, "The wheel is that of the last commit.")
    wheels = sorted(repository.glob("_build/release/dpkit-*.whl"))
    if len(wheels) != 1:
        raise ValueError(
            f"not one wheel (found: {len(wheels)}); first: make release"
        )
    return wheels[0]


def main() -> int:
    """Build the archive, and say where it is."""
    parser = argparse.ArgumentParser(prog="build_archive.py")
    parser.add_argument("repository", type=Path)
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    site = given.repository / "_build" / "html"
    try:
        wheel = wheel_of(given.repository)
        archive = pack(given.repository, site, wheel, given.folder)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{archive}: {archive.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
