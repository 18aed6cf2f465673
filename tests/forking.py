"""Processes that are forked from one that has imported torch.

A new Python takes two seconds of a processor to import torch, and one more
for the first step of an optimizer; a forked one a hundredth of that. It runs
the program that it is given, but nothing at its exit, and becomes a child of
this process::

    this process ─── a program, and three files ───▶ the server
         ▲                                               │ forks
         │ adopts it when                           one between
         │ the one between has ended                     │ forks
         └────────────────────────────────────────── the process

The process that runs the tests does not fork itself: autograd refuses to work
in a fork of a process that has started its threads. Only Linux has it so.
"""

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

PR_SET_CHILD_SUBREAPER = 36

SERVER = """
import gc, json, os, socket, sys, tempfile, threading, time
import traceback
import pytest, torch
import torch.distributed.pipelining, torch.distributed.tensor.parallel
import dpkit.__main__, dpkit.processes

# What torch imports when it is first needed, a second worth of it.
p = torch.nn.Parameter(torch.zeros(3))
p.grad = torch.zeros(3)
torch.optim.SGD([p], 0.1, 0.9).step()
gc.freeze()  # or every process would look through all of it

asked = socket.socket(fileno=int(sys.argv[1]))
asked.send(b"ready")
while True:
    message, files, _, _ = socket.recv_fds(asked, 2**20, 3)
    if not message:
        os._exit(0)
    if not files:  # what all processes that follow are to have
        exec(message, {})
        gc.freeze()
        asked.send(b"prepared")
        continue
    between = os.fork()
    if not between:
        between = os.getpid()
        process = os.fork()
        if not process:
            break
        asked.send(str(process).encode())
        os._exit(0)
    os.waitpid(between, 0)
    asked.send(b"adopted")
    for file in files:
        os.close(file)

asked.close()
for number, file in enumerate(files):
    os.dup2(file, number)
    os.close(file)
while os.getppid() == between:
    time.sleep(0.001)
os.setsid()
tempfile.tempdir = None
job = json.loads(message)
os.chdir(job["folder"])
os.environ.clear()
os.environ.update(job["environment"])
path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
sys.path[:0] = [job["folder"], *filter(None, path)]
sys.argv[:] = ["-c", *job["arguments"]]
status = 0
try:
    exec(job["program"], {"__name__": "__main__"})
except SystemExit as end:
    status = end.code or 0
    if not isinstance(status, int):
        print(status, file=sys.stderr)
        status = 1
except BaseException:
    traceback.print_exc()
    status = 1
threading._shutdown()  # wait for the other threads, as Python does
sys.stdout.flush()
os._exit(status)  # and leave the thousands of modules as they are
"""


class Forked:
    """What a Popen of ``python [-P] -c program arguments…`` is to its user."""

    def __init__(
        self, server, words, *, env=None, cwd=None, text=False,
        start_new_session, bufsize=-1, **streams,
    ):  # fmt: skip
        python, option, program, *arguments = [
            word for word in map(str, words) if word != "-P"
        ]
        assert (python, option) == (sys.executable, "-c")
        assert start_new_session
        job = {
            "program": program,
            "arguments": arguments,
            "environment": dict(env or os.environ),
            "folder": str(cwd or os.getcwd()),
        }
        self.returncode, self._look = None, threading.Lock()
        self.stdin = self.stdout = self.stderr = None
        given, pipes = [0, 1, 2], []  # those that are not named are as here
        for name, wanted in streams.items():
            number = ("stdin", "stdout", "stderr").index(name)
            if wanted == subprocess.PIPE:
                ends = os.pipe()
                pipes.append(ends[number > 0])
                mode = ("r" if number else "w") + ("" if text else "b")
                buffering = 0 if bufsize == 0 else -1
                own = os.fdopen(ends[number == 0], mode, buffering)
                setattr(self, name, own)
            given[number] = pipes[-1] if wanted == subprocess.PIPE else wanted
        numbers = [f if isinstance(f, int) else f.fileno() for f in given]
        self.pid = server.fork(job, numbers)
        for pipe in pipes:
            os.close(pipe)

    def poll(self):
        with self._look:  # only one thread can bury it
            if self.returncode is None:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                if pid:
                    self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout=600):
        end = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            time.sleep(0.002)
        return self.returncode

    def communicate(self, timeout=600):
        """Read both pipes to their ends at once, for either may be full."""
        pipes = [pipe for pipe in (self.stdout, self.stderr) if pipe]
        with self, ThreadPoolExecutor(2) as pool:
            reads = {pipe: pool.submit(pipe.read) for pipe in pipes}
            try:
                found = {p: r.result(timeout) for p, r in reads.items()}
                self.wait(timeout)
            except BaseException:
                self.kill()  # or the reads would never end
                raise
        return found.get(self.stdout), found.get(self.stderr)

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for pipe in (self.stdin, self.stdout, self.stderr):
            if pipe:
                pipe.close()
        self.wait()


class Server:
    """Forks processes; to be used in a ``with`` statement."""

    def __init__(self):
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._lock = threading.Lock()
        self._socket, asked = socket.socketpair(
            socket.AF_UNIX, socket.SOCK_SEQPACKET
        )
        # Who asks CUDA itself can fork no one that uses it.
        own = {"OMP_NUM_THREADS": "1", "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
        own["TQDM_DISABLE"] = ""  # read once, when tqdm is imported
        with asked:
            self._process = subprocess.Popen(
                [sys.executable, "-c", SERVER, str(asked.fileno())],
                env=os.environ | own,
                pass_fds=[asked.fileno()],
                start_new_session=True,  # Ctrl-C is not for it
            )
        assert self._socket.recv(9) == b"ready"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._socket.close()
        assert self._process.wait(30) == 0

    def popen(self, *args, **kwargs):
        """Return a Python that is forked."""
        return Forked(self, *args, **kwargs)

    def prepare(self, program):
        """Run a program whose imports all later processes have."""
        with self._lock:
            self._socket.send(program.encode())
            assert self._socket.recv(9) == b"prepared"

    def fork(self, job, files):
        """Let a process run; return its number."""
        with self._lock:
            socket.send_fds(self._socket, [json.dumps(job).encode()], files)
            pid = int(self._socket.recv(9))
            assert self._socket.recv(9) == b"adopted"
        return pid
