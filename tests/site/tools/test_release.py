"""The files of a release hold what a reader without a clone needs."""

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import build_release
import pytest

from tests.repository import ROOT

ADDRESS = "https://github.com/some/book"
PACKAGES = {"dpkit": ROOT / "dpkit", "dpbook": ROOT / "book" / "dpbook"}
# The images of clothes, which a release makes of the full set.
LEFT_OUT = re.compile(r"ubyte\.gz$|(LICENSE|README)\.fashion-mnist$")


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """A folder with what the wheel holds."""
    folder = tmp_path_factory.mktemp("installed")
    with zipfile.ZipFile(wheel) as files:
        files.extractall(folder)
    return folder


def run(installed, folder, *words):
    """Run a Python that finds the wheel's files, and no clone."""
    env = {**os.environ, "PYTHONPATH": str(installed), "DPKIT_DEVICES": "sim"}
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_the_wheel_holds_all_files_of_the_packages_but_the_images(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    for package, folder in PACKAGES.items():
        for file in folder.rglob("*"):
            if file.is_dir() or "__pycache__" in file.parts:
                continue
            name = f"{package}/{file.relative_to(folder).as_posix()}"
            assert (name in names) != bool(LEFT_OUT.search(name)), name


def test_the_command_tells_the_version(installed, tmp_path):
    (names,) = installed.glob("*.dist-info/entry_points.txt")
    assert "dpkit = dpkit.__main__:main" in names.read_text("utf-8")
    source = "import sys; from dpkit.__main__ import main; main(sys.argv[1:])"
    code, said = run(installed, tmp_path, "-c", source, "--version")
    assert (code, said) == (0, f"dpkit {version_of(installed)}\n")


def version_of(installed: Path) -> str:
    """Return the version that the wheel's metadata give."""
    (metadata,) = installed.glob("*.dist-info/METADATA")
    return re.search(r"(?m)^Version: (.+)$", metadata.read_text("utf-8"))[1]


def test_a_step_runs_without_a_clone(installed, tmp_path):
    code, said = run(installed, tmp_path, "-m", "dpkit", "step")
    assert code == 0, said
    source = "import dpkit, dpbook; print(dpkit.__file__, dpbook.__file__)"
    code, said = run(installed, tmp_path, "-c", source)
    assert said.count(str(installed)) == 2


def test_links_of_the_readme_become_addresses():
    readme = "![A page](.github/a.png) [b](B.md) [c](https://c.org/x) [d](#d)"
    made = build_release.with_addresses(readme, ADDRESS, "v1.2")
    assert made == (
        f"![A page]({ADDRESS}/raw/v1.2/.github/a.png) "
        f"[b]({ADDRESS}/blob/v1.2/B.md) [c](https://c.org/x) [d](#d)"
    )
    elsewhere = ADDRESS.replace("github", "gitlab")
    made = build_release.with_addresses("[b](B.md)", elsewhere, "v1.2")
    assert made == f"[b]({elsewhere}/-/blob/v1.2/B.md)"


def test_the_readme_has_no_link_that_an_index_cannot_follow():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    made = build_release.with_addresses(readme, ADDRESS, "v1.2")
    assert made != readme
    targets = re.findall(r"\]\(([^)]*)\)", made)
    assert all(target.startswith("https://") for target in targets), targets
    for file in re.findall(rf"{ADDRESS}/\w+/v1\.2/([^)]*)\)", made):
        assert (ROOT / file).is_file(), file


def test_the_address_and_the_version_are_found():
    config = (ROOT / "_config.yml").read_text(encoding="utf-8")
    assert build_release.ADDRESS.search(config)
    written = config.replace('url: ""', f'url: "{ADDRESS}"')
    assert build_release.ADDRESS.search(written)[1].startswith("https://")
    package = (ROOT / "dpkit" / "__init__.py").read_text(encoding="utf-8")
    assert build_release.VERSION.search(package)
