"""Real processes: one function on every rank, and what each rank returns.

::

    launch(fn, 3)             rank 0            rank 1            rank 2
      │ job ──────────▶ a process         a process         a process
      │                 joins the group   joins the group   joins the group
      │                 fn(*args)  ◀────▶ fn(*args)  ◀────▶ fn(*args)
      ◀── values ────── value 0           value 1           value 2

Unlike under ``multiprocessing``, no rank runs the calling program again: a
script, a notebook or standard input can call :func:`launch` on its first line.
:class:`Workers` are ranks that stay for the next function.

``workers`` -- begin here. The parent: start, give a job, take the values;
``starting`` -- a process for a rank: forked, or a new Python;
``forking`` -- a process is forked from one that has imported torch;
``server`` -- the program of that one;
``jobs`` -- a function and its arguments on the way to the ranks;
``rank`` -- the program of a rank; ``children``, which end where it does;
``locations`` -- each rank notes where it is, for the parent to read;
``run_clock`` -- which seconds count for the time that a run may take;
``failures`` -- what the parent says when a rank fails or is late.
"""

from dpkit.processes.children import (
    ending_children,
    exit_status,
    finish_program,
    flush_output,
)
from dpkit.processes.forking import absolute_path, fork_server
from dpkit.processes.locations import stack_lines
from dpkit.processes.rank import gpus_for_ranks, rank_device, run_rank
from dpkit.processes.server import Command
from dpkit.processes.starting import Process, ctrl_c_deferred
from dpkit.processes.workers import Workers, launch

__all__ = [
    "Command",
    "Process",
    "Workers",
    "absolute_path",
    "ctrl_c_deferred",
    "ending_children",
    "exit_status",
    "finish_program",
    "flush_output",
    "fork_server",
    "gpus_for_ranks",
    "launch",
    "rank_device",
    "run_rank",
    "stack_lines",
]
