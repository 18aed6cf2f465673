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

Only Linux has it so.
"""

import ctypes
import inspect
import json
import os
import socket
import subprocess
import sys
import threading
from types import SimpleNamespace

PR_SET_CHILD_SUBREAPER = 36

SERVER = """
import gc, json, os, socket, sys, tempfile, threading, time, traceback
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


class Forked(subprocess.Popen):
    """What ``python [-P] -c program arguments…`` is, forked by a server."""

    def __init__(self, server, *args, **kwargs):
        self._server = server
        super().__init__(*args, **kwargs)

    def _execute_child(self, *args):
        """Do what a Popen does here, by the server."""
        real = inspect.signature(super()._execute_child)
        told = SimpleNamespace(**real.bind(*args).arguments)
        files = told.p2cread, told.c2pwrite, told.errwrite
        words = [word for word in map(str, told.args) if word != "-P"]
        job = {
            "program": words[2],
            "arguments": words[3:],
            "environment": dict(told.env or os.environ),
            "folder": str(told.cwd or os.getcwd()),
        }
        assert (words[0], words[1]) == (sys.executable, "-c")
        assert told.start_new_session
        # Those that are no pipes are as here.
        given = [own if f < 0 else f for own, f in enumerate(files)]
        self.pid = self._server.fork(job, given)
        self._child_created = True
        own_ends = told.p2cwrite, told.c2pread, told.errread
        for own_end, file in zip(own_ends, files):
            if own_end >= 0:  # it is a pipe
                os.close(file)


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
        """Return a Popen of a Python that is forked."""
        return Forked(self, *args, **kwargs)

    def fork(self, job, files):
        """Let a process run; return its number."""
        with self._lock:
            socket.send_fds(self._socket, [json.dumps(job).encode()], files)
            pid = int(self._socket.recv(9))
            assert self._socket.recv(9) == b"adopted"
        return pid
