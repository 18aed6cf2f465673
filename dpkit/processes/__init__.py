"""Real processes: one function on every rank, and what each rank returns.

::

    launch(fn, 3)             rank 0            rank 1            rank 2
      │ job ──────────▶ a new Python      a new Python      a new Python
      │                 joins the group   joins the group   joins the group
      │                 fn(*args)  ◀────▶ fn(*args)  ◀────▶ fn(*args)
      ◀── values ────── value 0           value 1           value 2

The ranks are started as new programs, not by ``multiprocessing``: a script,
a notebook or standard input can then call :func:`launch` on its first line,
for no rank runs the calling program again. :class:`Workers` are ranks that
stay for the next function.

``workers`` -- the parent: start, give a job, take the values, end;
``starting`` -- a new Python for a rank;
``jobs`` -- a function and its arguments on the way to the ranks;
``rank`` -- the program of a rank;
``whereabouts`` -- each rank notes where it is, for the parent to read;
``failures`` -- what the parent says when a rank fails or is late;
``shared_memory`` -- allreduce on one host, through memory that its
``mapping`` provides, ``segments`` use, and a ``barrier`` keeps in order.
"""

from dpkit.processes.rank import rank_device, run_rank
from dpkit.processes.shared_memory import SharedAllreduce
from dpkit.processes.workers import Workers, launch

__all__ = ["SharedAllreduce", "Workers", "launch", "rank_device", "run_rank"]
