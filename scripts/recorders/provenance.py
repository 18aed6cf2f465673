"""Write records into book/_data, with what they were made by."""

import json
import platform
import subprocess
from datetime import date
from pathlib import Path
from typing import Any

import torch

from dpkit.accelerator import real_devices
from dpkit.calibration import cpu_name, device_name

ROOT = Path(__file__).parent.parent.parent
DATA = ROOT / "book" / "_data"


def load(name: str) -> dict[str, Any]:
    """Return a record of book/_data."""
    record: dict[str, Any] = json.loads((DATA / f"{name}.json").read_text())
    return record


def store(name: str, record: dict[str, Any]) -> None:
    """Write a record of book/_data; it holds its provenance."""
    assert "provenance" in record
    (DATA / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n")
    print(f"written: {name}.json", flush=True)


def provenance() -> dict[str, Any]:
    """Return on what, with what and when the numbers were obtained."""
    return {
        "command": "make reproduce",
        "commit": git("rev-parse", "HEAD"),
        "uncommitted_changes": bool(git("status", "--porcelain")),
        "date": date.today().isoformat(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cpu": cpu_name(),
        "cpu_threads": torch.get_num_threads(),
        "gpus": [device_name(gpu) for gpu in real_devices()],
        "driver": driver(),
    }


def git(*words: str) -> str:
    """Return what git prints, or nothing without it or a repository."""
    try:
        run = subprocess.run(
            ["git", *words], cwd=ROOT, capture_output=True, text=True
        )
    except FileNotFoundError:
        return ""
    return run.stdout.strip()


def driver() -> str:
    """Return the version of the driver of the GPUs; nothing without any."""
    if not real_devices():
        return ""
    query = ["--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        run = subprocess.run(
            ["nvidia-smi", *query], capture_output=True, text=True, check=True
        )
    except FileNotFoundError:  # not NVIDIA's, or not brought along
        return ""
    return run.stdout.split()[0]
