"""Print which GPUs of this machine the pinned torch will not be able to use.

Usage: python scripts/environment/gpu_fits.py

`make setup` asks before it downloads this torch. Nothing is printed where all
is well, or where there is no `nvidia-smi`. The exit status is always 0: the
book runs without GPUs, too.
"""

import runpy
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
QUERY = (
    "nvidia-smi",
    "--query-gpu=name,compute_cap,driver_version",
    "--format=csv,noheader",
)

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
    'The page "A GPU owner\'s first hour" (book/gpus.md) says what to do. '
    "Without these GPUs the book runs on simulated devices."
)


def faults(rows: str) -> list[str]:
    """Return what will not work, from the lines that nvidia-smi prints."""
    found = []
    for index, row in enumerate(rows.splitlines()):
        try:
            name, capability, driver = map(str.strip, row.rsplit(",", 2))
            major, minor = map(int, capability.split("."))
            gpu = f"GPU {index}, {name}"
            # Without kernels for a card, a newer driver would not help it.
            found.append(
                FITS["no_kernels"](gpu, (major, minor), PINNED)
                or FITS["driver_too_old"](driver, PINNED)
            )
        except ValueError:
            found.append(f"nvidia-smi says what cannot be read ({row!r})")
    return list(dict.fromkeys(filter(None, found)))


def main() -> None:
    """Print a line for each thing that will not work."""
    if not shutil.which(QUERY[0]):
        return
    done = subprocess.run(QUERY, capture_output=True, text=True)
    said = (done.stdout + done.stderr).strip().partition("\n")[0]
    lines = faults(done.stdout)
    if done.returncode:
        lines = [f"nvidia-smi fails (status: {done.returncode}, {said!r})"]
    for line in [*lines, ADVICE] if lines else []:
        print(f"gpu: {line}", file=sys.stderr)


if __name__ == "__main__":
    main()
