"""Write one file about the last run of the tests, to attach to an issue.

Usage: python scripts/report_tests.py

It holds the failed tests with what they printed, the machine, versions, and
how the run can be repeated. The home folder is written as ``~``; of the
environment it has what tests/running/record.py lists.
"""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from lacking import is_here, required

ROOT = Path(__file__).parent.parent
RECORD = Path("_build") / "test-run.json"
REPORT = Path("_build") / "test-report.md"
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
# Run by a new process, in the environment of the tests.
MACHINE = """
import torch, torch.utils.collect_env as facts
print("Kernels of torch for the CPU:", torch.backends.cpu.get_cpu_capability())
print(facts.get_pretty_env_info())
"""
MOST_FAILURES = 50


def fenced(text: str) -> str:
    """Return a block of text as it is."""
    lines = text.strip("\n")
    return f"````text\n{lines}\n````\n"


def ask(words: list[str], **variables: str) -> str:
    """Return what a program prints, or why it cannot be asked."""
    try:
        done = subprocess.run(
            words,
            capture_output=True,
            text=True,
            cwd=ROOT,
            env=os.environ | variables,
            timeout=120,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return (done.stdout if done.returncode == 0 else done.stderr).strip()


def versions() -> str:
    """Return what is installed of what the project needs."""
    return "\n".join(
        f"{name} {metadata.version(name) if is_here(name) else 'is lacking'}"
        for name in sorted(required())
    )


def summary(run: dict[str, Any]) -> str:
    """Return the run in a few lines."""
    commit = ask(["git", "describe", "--always", "--dirty"])
    lines = {
        "command": f"`{run['command']}`",
        "commit": commit,
        "exit status": run["status"],
        "failed": len(run["failed"]),
        "skipped": sum(run["skipped"].values()),
        "seconds": run["seconds"],
        "seed of the order": run["seed"] or "none",
        "cores, memory available at the end": (
            f"{run['cores']}, {run['gigabytes available']} GB"
        ),
    }
    return "\n".join(f"- {name}: {value}" for name, value in lines.items())


def repeat(run: dict[str, Any], worker: str) -> str:
    """Return the command that runs again what one worker ran, in order.

    It runs the files up to the first one that failed there.
    """
    failed = {
        test["name"].split("::")[0]
        for test in run["failed"]
        if test["worker"] == worker
    }
    files = run["files"][worker]
    last = min(i for i, file in enumerate(files) if file in failed)
    words = [
        word
        for word in shlex.split(run["command"])
        if not word.startswith(("FILES=", "ONLY="))
    ]
    words.append("FILES=" + " ".join(dict.fromkeys(files[: last + 1])))
    return "PYTEST_XDIST_AUTO_NUM_WORKERS=1 " + shlex.join(words)


def parts(run: dict[str, Any]) -> Iterator[str]:
    """Give the parts of the report."""
    yield "# A run of the tests\n"
    yield summary(run) + "\n"
    yield "## Failed tests\n"
    for test in run["failed"][:MOST_FAILURES]:
        yield f"### {test['name']}\n"
        yield f"In its {test['when']}, by worker {test['worker']}.\n"
        yield fenced(test["printed"])
    for test in run["failed"][MOST_FAILURES:]:
        yield f"- {test['name']}"
    yield "\n## What each worker ran, up to its first failure\n"
    for worker in run["files"]:
        if any(test["worker"] == worker for test in run["failed"]):
            yield f"{worker}:\n"
            yield fenced(repeat(run, worker))
    yield "## The machine\n"
    yield fenced(ask([sys.executable, "-c", MACHINE], **run["environment"]))
    yield "## Versions\n"
    yield fenced(f"Python {sys.version}\n{versions()}")
    yield "## Variables of the environment\n"
    yield fenced("\n".join("=".join(v) for v in run["environment"].items()))
    yield "## Skipped tests\n"
    yield fenced("\n".join(f"{n:6}  {r}" for r, n in run["skipped"].items()))


def without_places(text: str) -> str:
    """Leave out colours, and where things lie on this machine."""
    text = COLOURS.sub("", text)
    for place, name in ((ROOT, "."), (Path.home(), "~")):
        if place != Path("/"):
            text = text.replace(str(place), name)
    return text


def main() -> int:
    """Write the report."""
    if not RECORD.exists():
        print("there is no run to report; run: make test", file=sys.stderr)
        return 1
    run = json.loads(RECORD.read_text(encoding="utf-8"))
    text = without_places("\n".join(parts(run)))
    REPORT.write_text(text, encoding="utf-8")
    print(f"{REPORT} ({len(text) // 1000 + 1} kB) is what to attach.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
