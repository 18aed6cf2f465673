"""Run scripts by ``python -m dpkit torchrun`` and ``run``, for tests."""

import os
import subprocess
import sys
from pathlib import Path

from tests.forked_python import popen

ROOT = Path(__file__).parents[2]
MAIN = """
import sys, warnings
from dpkit.__main__ import main
warnings.simplefilter("ignore")
sys.exit(main())
"""


def command(*words, **others):
    """Fork ``python -m dpkit`` with these words; return the process."""
    return popen(
        [sys.executable, "-c", MAIN, *words],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        **others,
    )


def new_command(*words, **others):
    """Start ``python -m dpkit`` as a reader does; return the process."""
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "dpkit", *map(str, words)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        **others,
    )


def torchrun(tmp_path, *options, script, **others):
    """Run a script on ranks, as ``run_script`` does."""
    return run_script(tmp_path, "torchrun", *options, script=script, **others)


def run_script(
    tmp_path,
    name,
    *options,
    script,
    arguments=(),
    status=0,
    start=command,
    **others,
):
    """Run a script by a command; return what is printed.

    Args:
        tmp_path: The folder in which it runs.
        name: That of the command, such as "run".
        *options: Those of the command.
        script: The code of the script, which lies in ``script.py``.
        arguments: Those of the script.
        status: The exit status that is expected.
        start: How it is started.
        **others: What ``start`` is given besides.
    """
    path = tmp_path / "script.py"
    path.write_text(script)
    given = ["script"] if "-m" in options else [path]
    words = [name, *options, *given, *arguments]
    process = start(*words, cwd=tmp_path, **others)
    found, _ = process.communicate()
    assert process.returncode == status, found
    return found


def section(text, title):
    """Return the lines of a section of the report."""
    lines = text.splitlines()
    (first,) = [i for i, line in enumerate(lines) if line.startswith(title)]
    rest = lines[first + 1 :]
    end = rest.index("") if "" in rest else len(rest)
    return rest[:end]


def looked_for(lines):
    """Return the sentence of a section that has found nothing, in one line."""
    nothing, *sentence = lines
    assert nothing == "  nothing was found"
    return " ".join(line.strip() for line in sentence)
