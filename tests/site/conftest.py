"""Fixtures of the tests of pages: a built site, and the wheel."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock

from tests.repository import ROOT

BuildSite = Callable[..., Path]


@pytest.fixture(scope="session")
def build_site() -> BuildSite:
    """Build the site of the book in a folder; a warning is a failure."""

    def build(folder: Path, **environment: str) -> Path:
        if not (folder / "book").exists():
            shutil.copytree(ROOT / "book", folder / "book")
            for name in ("_config.yml", "_toc.yml", "CITATION.cff"):
                shutil.copy(ROOT / name, folder)
        script = ROOT / "scripts" / "pages" / "build_site.py"
        run = subprocess.run(
            [sys.executable, script, folder],
            capture_output=True,
            text=True,
            env=os.environ | environment,
        )
        assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]
        return folder / "_build" / "html"

    return build


@pytest.fixture(scope="session")
def site(
    build_site: BuildSite,
    tmp_path_factory: pytest.TempPathFactory,
    worker_id: str,
) -> Path:
    """Give the folder of the built site, to read; all workers share one.

    It is built of the files as they are, or is that in ``$BUILT_SITE``.
    """
    if built := os.environ.get("BUILT_SITE"):
        return Path(built).resolve()
    folder = tmp_path_factory.getbasetemp()
    if worker_id != "master":
        folder = folder.parent
    html = folder / "site" / "_build" / "html"
    with FileLock(folder / "site.lock"):
        return html if html.exists() else build_site(folder / "site")


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the files as they are."""
    source = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    without = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "dpkit", source / "dpkit", ignore=without)
    shutil.copytree(
        ROOT / "book" / "dpbook", source / "book" / "dpbook", ignore=without
    )
    words = "pip wheel --quiet --no-deps --no-build-isolation --no-index"
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", *words.split(), "--wheel-dir", folder, source],
        check=True,
    )
    (file,) = folder.iterdir()
    return file
