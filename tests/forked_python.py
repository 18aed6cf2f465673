"""Programs that are forked from a Python that has imported torch."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from dpkit.processes.forking import Forked, fork_server
from dpkit.processes.server import Command


def popen(words, *, env=None, **others):
    """Return what ``subprocess.Popen`` does for ``python -c program …``.

    It is a new Python where libraries would not read one of its variables.
    """
    env = {"OMP_NUM_THREADS": "1", **(env or os.environ)}
    words = [*map(str, words)]
    if server := fork_server(env):
        return ForkedPython(server, words, env, **others)
    return subprocess.Popen(words, env=env, **others)


def start(forking, code):
    """Start a program of Python whose output is read as text."""
    return forking.Popen(
        [sys.executable, "-c", code],
        stdout=forking.PIPE,
        text=True,
        start_new_session=True,
    )


def printed(forking, code):
    """Return what a program prints."""
    with start(forking, code) as run:
        told, _ = run.communicate()
    return told


class ForkedPython(Forked):
    """A program that is forked: what a Popen is to its user."""

    def __init__(
        self, server, words, env, *, cwd=None, stdout=None, stderr=None,
        text=False, start_new_session,
    ):  # fmt: skip
        python, option, program, *arguments = words
        assert (python, option) == (sys.executable, "-c")
        assert start_new_session
        cwd = str(cwd or os.getcwd())
        first = [cwd, *filter(None, env.get("PYTHONPATH", "").split(":"))]
        command = Command(
            program,
            arguments,
            environment=env,
            cwd=cwd,
            path=[*first, *sys.path],
        )
        self.stdout, out = _stream(stdout, 1, text)
        self.stderr, error = _stream(stderr, 2, text)
        error = out if stderr == subprocess.STDOUT else error
        super().__init__(server.ask(command, [0, out, error]))
        for pipe, end in ((self.stdout, out), (self.stderr, error)):
            if pipe:
                os.close(end)

    def communicate(self):
        """Read both pipes to their ends at once, for either may be full."""
        pipes = [pipe for pipe in (self.stdout, self.stderr) if pipe]
        with self, ThreadPoolExecutor(2) as pool:
            reads = {pipe: pool.submit(pipe.read) for pipe in pipes}
            try:
                found = {p: r.result() for p, r in reads.items()}
                self.wait()
            except BaseException:
                self.kill()  # or the reads would never end
                raise
        return found.get(self.stdout), found.get(self.stderr)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for pipe in (self.stdout, self.stderr):
            if pipe:
                pipe.close()
        self.wait()


def _stream(wanted, number, text):
    """Return our end of a pipe, if one is wanted, and what is given away."""
    if wanted == subprocess.PIPE:
        own, end = os.pipe()
        return os.fdopen(own, "r" if text else "rb"), end
    is_file = hasattr(wanted, "fileno")
    return None, wanted.fileno() if is_file else number
