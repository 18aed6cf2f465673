"""Ranks as threads of this process, for PyTorch's own engines.

``launching`` -- begin here: the threads of ``dpkit.sim.launch``;
``scheduler`` -- one rank runs at a time, and who is next;
``watching`` -- whether the one that runs is at work;
``needed`` -- what ranks need of torch and of the machine, or are refused;
``thread_state`` -- what PyTorch has once in a process, and a rank for itself;
``world`` -- what ranks share, and what each has for itself;
``rank_group`` -- a process group: the methods that PyTorch calls;
``group`` -- how ranks that take turns perform what is called;
``pending`` -- one collective: which ranks have arrived, and when it runs;
``sending`` -- what it sends, by dpkit's own collectives;
``modes`` -- what PyTorch's dispatch modes see of a group;
``works`` -- what a rank holds of an operation, and waits for;
``alike`` -- one rank runs, and stands for all; ``alike_checks``, what is
refused then; ``one_rank``, what a collective of a library leaves on it;
``stand_ins``, what the others would have contributed;
``dtensor`` -- what DTensor lacks for simulated devices; ``shard_random``, how
ranks draw its random numbers;
``context_parallel_state`` -- what ``context_parallel`` has once in a process;
``saving`` -- what PyTorch's checkpoints need of ranks;
``flat_parameters`` -- what ``FullyShardedDataParallel`` needs;
``memory_layouts`` -- which tensors a group sends;
``reductions`` -- by what it reduces, such as ``ReduceOp.AVG``;
``refused`` -- what only a process can do;
``store`` -- keys and values that one rank sets and another reads;
``error_words`` -- what an error of a rank is called in a message.

The way of one ``dist.all_reduce(x)``, on each rank:

1. PyTorch calls ``RankGroup.allreduce`` (``rank_group``), which
   ``modes.dispatched_as`` shows to PyTorch's dispatch modes, if there are any.
2. ``RankGroup._call`` checks the tensors. ``SimGroup._issue`` charges the host
   for the call, and notes from when on ``x`` may be sent: a ``Contribution``.
3. ``SimGroup._find_pending`` finds the ``PendingCollective`` that the ranks
   before have made, and compares the calls; the first rank makes it.
4. ``SimGroup._arrive`` looks up the sender in ``SENDERS`` (``sending``), and
   ``PendingCollective.arrive`` adds the contribution. All ranks but the last
   go on from here, with a ``SimWork``.
5. On the last rank ``PendingCollective.arrive`` calls the sender,
   ``send_allreduce``. This runs ``dpkit.allreduce`` for all ranks, on side
   streams of their devices. ``perform`` (``dpkit/library.py``) has its plan
   run message by message: ``run_in_pieces`` (``plan_runner``), which sends by
   ``streams.send``. Each message is a copy, which ``charge_copy``
   (``sim/tensors/charge.py``) issues to the clock: ``Clock.copy``.
6. ``RankWork.wait`` lets other ranks run until all have arrived
   (``SimWork._let_all_arrive``), and makes the current stream wait for the
   event at the end of the collective (``SimWork._wait_in_stream``).

DDP asks for a future in place of step 6, ``get_future`` (``works``), and reads
the sums when it is done. PyTorch has found the group by its backend "sim",
which ``sim/patches.py`` enters. Under torchrun a rank is a process: it asks a
thread here for all of this (``runs/forked``).

With ``alike=True`` step 4 is ``AlikeGroup._arrive``. For a collective of the
library it takes ``leave_allreduce`` from ``LEAVERS`` (``one_rank``). With
``algorithm="library"`` no message is sent in step 5: ``perform`` issues one
kernel on each device, ``Clock.collective``.
"""

from collections.abc import Callable
from typing import Any

from dpkit import sim
from dpkit.processes.starting import ctrl_c_deferred
from dpkit.runs.ranks.needed import check_ranks
from dpkit.units import check_count


def launch(
    fn: Callable[..., Any],
    world_size: int,
    *args: Any,
    algorithm: str | None = None,
    idle_limit: float | None = None,
    alike: bool = False,
) -> list[Any]:
    """Run ``fn(*args)`` on ranks of this process; return their values.

    Rank r is a thread. Its current device is ``sim:r``, whose host has its own
    clock. It is in the default process group. One rank runs at a time, until
    it waits for another: then the next one runs. So two runs take the same
    simulated time, which passes for the caller, too. A trace needs
    ``hosts="per_device"``. ``fn`` makes its modules. Each rank has its own
    random numbers, also those of Python and NumPy: ranks that set no seed draw
    different ones, as processes do. They depend on the caller's generators,
    which stay as they are. To run it in real processes, in the time on the
    wall, there is :func:`dpkit.launch`.

    A rank that waits for another outside of ``torch.distributed``, such as for
    a lock, keeps its turn, and waits for ever. After 5 s without work a
    warning names its line. Ctrl-C ends the launch then, too, and so does
    ``idle_limit``.

    Where ranks are ``alike``, rank 0 alone runs, and a collective completes
    with what the others would contribute: a thousand ranks take about as long
    as one. The caller promises that all do the same at the same moments,
    with tensors of the same shapes and with equal small integers; shards of
    ``fully_shard`` and DTensor are equal only where the ranks divide what is
    cut. Refused is what can be seen to break the promise:

    - a machine with values, or with a rank that is slow;
    - a message of one rank to another, as in a pipeline;
    - parts of unequal size, and a root that is not rank 0;
    - a program that asks which rank it is: its device is ``"sim"``;
    - work on the device of another rank;
    - groups of ranks that lie unequally in the nodes, or share a path;
    - algorithms in which a rank has another role, and messages that do not
      take the same time on all ranks: a library's collectives always do.

    Spans, memory and times are those of rank 0 in a launch of all ranks. One
    thing differs: where ranks copy to or from a host over a path that they
    share, each copy ends when that of the last rank would. With
    ``devices_per_switch=1`` they share none.

    Args:
        fn: Each rank calls it. All see the same variables.
        world_size: The number of ranks, one device for each.
        *args: Every rank gets a copy.
        algorithm: How collectives are sent: "library" is one launch, as by
            NCCL; "ring", "star" and the like is an allreduce by hand, and
            other collectives take rings and trees. None: a ring up to 8 ranks.
        idle_limit: The seconds after which a rank that does nothing ends the
            launch. None: the variable DPKIT_IDLE_LIMIT of the environment, as
            on a machine that runs tests; without it there is no limit.
        alike: Whether one rank stands for all. The list that is returned has
            its value alone, and a trace is labelled "one rank of N".

    Raises:
        RuntimeError: a rank raised an exception, which is its cause; no
            rank could go on, and the error names what each has waited for; or
            a rank has done nothing for ``idle_limit``.
        TypeError: ``fn`` is no function, or a call of it would run nothing.
        ValueError: there is no such algorithm; the limit is no positive
            number of seconds; or one rank cannot stand for all on this
            machine.

    Example:
        >>> import torch.distributed as dist
        >>> def total():
        ...     x = torch.tensor([1.0 + dist.get_rank()], device="sim")
        ...     dist.all_reduce(x)
        ...     return x.item()
        >>> dpkit.sim.launch(total, 3)
        [6.0, 6.0, 6.0]

        One of 512 ranks that each bring 1 GB:

        >>> def show_time():
        ...     x = torch.empty(250_000_000, device="sim")
        ...     dist.all_reduce(x)
        ...     torch.sim.synchronize()
        ...     print(f"{dpkit.sim.now():.3f} s", dpkit.sim.label()[-15:])
        >>> with dpkit.sim.machine(
        ...     num_devices=512, ranks_per_node=8, backing="meta"
        ... ):
        ...     _ = dpkit.sim.launch(show_time, 512, alike=True)
        0.040 s one rank of 512
    """
    check_count("world_size", world_size)
    sim.register()
    # What a first launch imports would be there in half.
    with ctrl_c_deferred():
        check_ranks(world_size, alike=alike)
        # Here, not above: all else works where torch lacks what ranks need.
        from dpkit.runs.ranks.launching import run_ranks
        from dpkit.runs.ranks.thread_state import import_dtensor
        from dpkit.runs.ranks.watching import limit_of

        import_dtensor()

    limit = limit_of(idle_limit)
    return run_ranks(
        fn,
        world_size,
        args=args,
        algorithm=algorithm,
        idle_limit=limit,
        alike=alike,
    )
