"""Write one file about the last run of the tests, to attach to an issue.

Usage: python scripts/testing/report_tests.py

It holds the failed tests with what they printed, how each worker's files can
be run again, the machine and the versions. The home folder is written as
``~``. pytest has written the failures (``--junitxml``), and the rest
``tests/running/second_try.py``.
"""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

ROOT = Path(__file__).parent.parent.parent
FAILURES, RUN, REPORT = (
    Path("_build", name)
    for name in ("test-run.xml", "test-run.json", "test-report.md")
)
COLOURS = re.compile(r"\x1b\[[0-9;]*m|#x1B\[[0-9;]*m")
MOST_CHARACTERS = 20_000  # of what one test printed, from its end
MOST_FAILURES = 50
# Run by the Python of the tests, with their variables.
MACHINE = """
import torch, torch.utils.collect_env as facts
from importlib.metadata import distributions
print("Kernels of torch for the CPU:", torch.backends.cpu.get_cpu_capability())
print(facts.get_pretty_env_info())
print(*sorted(f"{d.name} {d.version}" for d in distributions()), sep="\\n")
"""


def fenced(text: str) -> str:
    """Return a block of text as it is."""
    lines = text.strip("\n")
    return f"````text\n{lines}\n````\n"


def output_of(*command: str) -> str:
    """Return what a program prints, or why it cannot be asked."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=ROOT
        )
    except OSError as error:
        return str(error)
    return (done.stdout if done.returncode == 0 else done.stderr).strip()


def failures(suites: ElementTree.Element) -> Iterator[tuple[str, str]]:
    """Yield the name of each test that failed, and what it printed."""
    for case in suites.iter("testcase"):
        if {part.tag for part in case} & {"failure", "error"}:
            name = "::".join(
                filter(None, map(case.get, ("classname", "name")))
            )
            yield name, "\n".join(part.text or "" for part in case)


def parts(suites: ElementTree.Element, run: dict[str, Any]) -> Iterator[str]:
    """Yield the parts of the report."""
    (suite,) = suites.iter("testsuite")
    yield "# A run of the tests\n"
    yield f"- commit: {output_of('git', 'describe', '--always', '--dirty')}"
    for name in "errors", "failures", "skipped", "tests", "time":
        yield f"- {name}: {suite.get(name)}"
    if run["flaky"]:
        yield f"- flaky: {run['flaky']}"
    yield "\n## Failed tests\n"
    for count, (name, printed) in enumerate(failures(suites)):
        yield f"### {name}\n"
        if count < MOST_FAILURES:
            yield fenced(printed[-MOST_CHARACTERS:])
    yield "## What each worker ran\n"
    for files in run["ran"].values():
        yield fenced(f"{run['command']} {shlex.join(files)}")
    yield "## The machine\n"
    python = shlex.split(run["command"].partition(" -m ")[0])
    yield fenced(output_of("env", *python, "-c", MACHINE))


def without_places(text: str) -> str:
    """Leave out colours, and where things lie on this machine."""
    text = COLOURS.sub("", text)
    for folder, name in ((ROOT, "."), (Path.home(), "~")):
        if folder != Path("/"):
            text = text.replace(str(folder), name)
    return text


def main() -> int:
    """Write the report."""
    os.chdir(ROOT)
    if not (FAILURES.exists() and RUN.exists()):
        print("there is no run to report; run: make test", file=sys.stderr)
        return 1
    run = json.loads(RUN.read_text(encoding="utf-8"))
    found = parts(ElementTree.parse(FAILURES).getroot(), run)
    text = without_places("\n".join(found))
    REPORT.write_text(text, encoding="utf-8")
    if run["flaky"]:
        print(f"flaky: {run['flaky']}")
    print(f"{REPORT} ({len(text) // 1000 + 1} kB) is what to attach.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
