"""Write records into book/_data, with what they were made by.

As a program it prints this, as JSON.
"""

import json
import platform
import subprocess
import sys
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


def provenance(command: str) -> dict[str, Any]:
    """Return where, with what software and when numbers were obtained.

    Args:
        command: What obtains them again, such as "python scripts/record.py
            mesh". ``make reproduce`` makes some of the records alone.
    """
    return {
        "command": command,
        "commit": git("rev-parse", "HEAD"),
        "uncommitted_changes": bool(uncommitted()),
        "date": date.today().isoformat(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cpu": cpu_name(),
        "cpu_threads": torch.get_num_threads(),
        "gpus": [device_name(gpu) for gpu in real_devices()],
        "driver": driver(),
    }


def uncommitted() -> list[str]:
    """Return the files that are not as in the commit.

    A record that was made again with the same results does not count: else
    all but the first of ``make reproduce`` would be of uncommitted changes.
    """
    names = git("diff", "--name-only", "HEAD").splitlines()
    names += git("ls-files", "--others", "--exclude-standard").splitlines()
    return [name for name in names if not has_same_results(ROOT / name)]


def has_same_results(path: Path) -> bool:
    """Return whether a file is a record with the results of the commit."""
    is_record = DATA in path.parents and path.suffix == ".json"
    if not is_record or not path.exists():
        return False
    committed = git("show", f"HEAD:{path.relative_to(ROOT).as_posix()}")
    if not committed:
        return False
    now, then = json.loads(path.read_text()), json.loads(committed)
    made = now.pop("provenance", None), then.pop("provenance", None)
    return all(made) and now == then


def git(*arguments: str) -> str:
    """Return what git prints, or nothing without it or a repository."""
    return output("git", *arguments)


def driver() -> str:
    """Return the version of the driver of the GPUs; nothing without any."""
    query = ["--query-gpu=driver_version", "--format=csv,noheader"]
    lines = output("nvidia-smi", *query).split() if real_devices() else []
    return lines[0] if lines else ""


def output(*command: str) -> str:
    """Return what a program prints, or nothing where it is not installed."""
    try:
        run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    except FileNotFoundError:
        return ""
    return "" if run.returncode else run.stdout.strip()


if __name__ == "__main__":
    print(json.dumps(provenance(*sys.argv[1:])))
