"""Print which GPUs of this machine torch will not be able to use, and why.

Usage: python scripts/gpu_fits.py [--there]

`make setup` asks before it downloads a torch, and again when it is done. The
answer is about the torch that requirements.txt pins, or with `--there` about
the one that this Python has. Nothing is printed where all is well, or where
there is no `nvidia-smi`. The exit status is always 0: the book runs without
GPUs, too.
"""

import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
QUERY = (
    "nvidia-smi",
    "--query-gpu=name,compute_cap,driver_version",
    "--format=csv,noheader",
)
SECONDS = 60

# One source of what fits what. It is read as a file: dpkit itself cannot be
# imported before there is a torch.
FITS = runpy.run_path(str(ROOT / "dpkit" / "accelerator" / "fits.py"))

# What the pinned torch was built for (tests compare it with that torch).
PINNED = FITS["Build"](
    torch="2.15.0",
    cuda="13.2",
    architectures=("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"),
)
ADVICE = (
    'README, "A GPU owner\'s first five minutes", says what to do. Without '
    "these GPUs the book runs on simulated devices."
)


def build(there: bool) -> Any:
    """Return what the torch in question was built for; None without CUDA."""
    if not there:
        return PINNED
    import torch

    if torch.version.cuda is None:
        return None
    architectures = tuple(torch.cuda.get_arch_list())
    return FITS["Build"](torch.__version__, torch.version.cuda, architectures)


def faults(rows: str, torch_build: Any) -> list[str]:
    """Return what will not work, from the lines that nvidia-smi prints."""
    found = []
    for index, row in enumerate(rows.splitlines()):
        try:
            name, capability, driver = map(str.strip, row.rsplit(",", 2))
            major, minor = map(int, capability.split("."))
            gpu = f"GPU {index}, {name}"
            lacking = FITS["no_kernels"](gpu, (major, minor), torch_build)
            # Without kernels for a card, a newer driver would not help it.
            found.append(
                lacking or FITS["driver_too_old"](driver, torch_build)
            )
        except ValueError:
            found.append(f"nvidia-smi says what cannot be read ({row!r})")
    return list(dict.fromkeys(filter(None, found)))


def ask() -> tuple[str, str]:
    """Return what nvidia-smi prints, and what is wrong with it."""
    try:
        done = subprocess.run(
            QUERY, capture_output=True, text=True, timeout=SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", f"nvidia-smi does not answer ({error})"
    if done.returncode:
        said = (done.stdout + done.stderr).strip().partition("\n")[0]
        return "", f"nvidia-smi fails (status: {done.returncode}, {said!r})"
    return done.stdout, ""


def main(there: bool) -> None:
    """Print a line for each thing that will not work."""
    if not shutil.which(QUERY[0]):
        return
    torch_build = build(there)
    rows, error = ask()
    lines = [error] if error else []
    if torch_build is None:
        lines.append("torch was built without CUDA, so it uses no GPU")
    else:
        lines += faults(rows, torch_build)
    for line in [*lines, ADVICE] if lines else []:
        print(f"gpu: {line}", file=sys.stderr)


if __name__ == "__main__":
    main("--there" in sys.argv[1:])
