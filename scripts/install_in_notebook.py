"""Install dpkit into the Python of a notebook, whose first cell runs this.

A torch that is there and new enough stays: another one might not fit the
driver of the GPUs. Where there is none, or one that is too old, pip brings the
one of requirements.txt. Before it does, this says what it will be, and which
GPUs it will not be able to use.
"""

import importlib
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

from environment import gpu_fits
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
PIP = (sys.executable, "-m", "pip", "install", "--no-input")
FOLDER = f"{ROOT}[lab]"
CONSTRAINTS = Path("torch-here.txt")
NAMES = ("torch", "torchvision")


def needed() -> list[Requirement]:
    """Return which torch and torchvision the chapters need."""
    facts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    project = facts["project"]
    asked = project["dependencies"] + project["optional-dependencies"]["lab"]
    found = map(Requirement, asked)
    return [each for each in found if each.name in NAMES]


def is_here(requirement: Requirement) -> bool:
    """Return whether it is installed, and new enough."""
    try:
        version = metadata.version(requirement.name)
    except metadata.PackageNotFoundError:
        return False
    return requirement.specifier.contains(version, prereleases=True)


def pip(*options: str) -> str:
    """Install dpkit, or what the options say; return what pip prints.

    Raises:
        SystemExit: pip has failed.
    """
    command = (*PIP, "-c", str(CONSTRAINTS), *options, FOLDER)
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{done.stdout}{done.stderr}\npip could not install dpkit")
    return done.stdout


def constraints(kept: list[str]) -> list[str]:
    """Return lines that tell pip which torch and torchvision to take.

    A torch that is kept decides which torchvision fits. In place of one that
    is not, dpkit has been tested with those of requirements.txt.
    """
    if "torch" in kept:
        return [f"{name}=={metadata.version(name)}" for name in kept]
    pinned = (ROOT / "requirements.txt").read_text("utf-8").splitlines()
    return [line for line in pinned if line.split("==")[0] in NAMES]


def announce(lacking: Requirement) -> None:
    """Print what pip will install, as a torch is lacking or too old."""
    here = [d.version for d in metadata.distributions(name=lacking.name)]
    print(
        f"dpkit needs {lacking} (here: {here[0] if here else 'none'}). "
        "pip will install these packages, up to 6 GB with the libraries for "
        "CUDA. To keep what is here, interrupt this cell."
    )
    for line in pip("--dry-run").splitlines():
        if line.startswith("Would install "):
            print(line.removeprefix("Would install "))


def main() -> None:
    """Keep the torch that is here, or announce another; install dpkit."""
    lacking = [each for each in needed() if not is_here(each)]
    kept = [name for name in NAMES if name not in {r.name for r in lacking}]
    lines = [f"{line}\n" for line in constraints(kept)]
    CONSTRAINTS.write_text("".join(lines), encoding="utf-8")
    if lacking:
        announce(lacking[0])
    if "torch" not in kept:
        gpu_fits.main()
    pip("--quiet")
    importlib.invalidate_caches()


if __name__ == "__main__":
    main()
