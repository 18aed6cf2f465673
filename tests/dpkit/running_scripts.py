"""Run scripts by ``python -m dpkit torchrun``, for tests."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def torchrun(tmp_path, *options, script, arguments=(), status=0, **others):
    """Run a script on ranks; return what is printed.

    Args:
        tmp_path: The folder in which it runs.
        *options: Those of the command.
        script: The code of the script, which lies in ``script.py``.
        arguments: Those of the script.
        status: The exit status that is expected.
        **others: What ``subprocess.run`` is given besides.
    """
    path = tmp_path / "script.py"
    path.write_text(script)
    command = [sys.executable, "-W", "ignore", "-m", "dpkit", "torchrun"]
    given = ["script"] if "-m" in options else [path]
    found = subprocess.run(
        [*command, *options, *given, *arguments],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
        **others,
    )
    assert found.returncode == status, found.stdout
    return found.stdout


def section(text, title):
    """Return the lines of a section of the report."""
    lines = text.splitlines()
    (first,) = [i for i, line in enumerate(lines) if line.startswith(title)]
    rest = lines[first + 1 :]
    end = rest.index("") if "" in rest else len(rest)
    return rest[:end]
