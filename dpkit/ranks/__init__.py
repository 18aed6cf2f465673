"""Ranks as threads of this process, for PyTorch's own engines.

``launching`` -- begin here: the threads of ``dpkit.sim.launch``;
``turns`` -- one rank runs at a time, and who is next;
``watching`` -- whether the one that runs is at work;
``world`` -- what ranks share, and what each has for itself;
``group`` -- a process group: what PyTorch calls, as meetings of ranks;
``meetings`` -- one operation: who has come, and when it runs;
``sending`` -- what it sends, by dpkit's own collectives;
``modes`` -- what PyTorch's dispatch modes see of a group;
``works`` -- what a rank holds of an operation, and waits for;
``shards`` -- what DTensor lacks for simulated devices: ``shard_random``, how
ranks draw random numbers, and ``shard_attention``, how they attend;
``saving`` -- what PyTorch's checkpoints need of ranks;
``layouts`` -- which tensors a group sends;
``refused`` -- what only a process can do;
``store`` -- keys and values that one rank sets and another reads.
"""

from collections.abc import Callable
from typing import Any

from dpkit import sim
from dpkit.processes.starting import ctrl_c_deferred
from dpkit.theory.units import check_count


def launch(
    fn: Callable[..., Any],
    world_size: int,
    *args: Any,
    algorithm: str | None = None,
    idle_limit: float | None = None,
) -> list[Any]:
    """Run ``fn(*args)`` on ranks of this process; return their values.

    Rank r is a thread. Its current device is ``sim:r``, whose host has its own
    clock. It is in the default process group. One rank runs at a time and
    hands on where it waits for another: two runs take the same simulated time,
    which passes for the caller, too. A trace needs ``hosts="per_device"``.
    ``fn`` makes its modules. Each rank has its own random numbers, also those
    of Python and NumPy: ranks that set no seed draw different ones, as
    processes do. They depend on the caller's generators, which stay as they
    are.

    A rank that waits for another outside of ``torch.distributed``, such as for
    a lock, keeps its turn, and waits for ever. After 5 s without work a
    warning names its line. Ctrl-C ends the launch then, too, and so does
    ``idle_limit``.

    Args:
        fn: Each rank calls it. All see the same variables.
        world_size: The number of ranks, one device for each.
        *args: Every rank gets a copy.
        algorithm: How collectives are sent: "library" is one launch, as by
            NCCL; "ring", "star" and the like is an allreduce by hand, beside
            which others take rings and trees. None: a ring up to 8 ranks.
        idle_limit: The seconds after which a rank that does nothing ends the
            launch. None: the variable DPKIT_IDLE_LIMIT of the environment, as
            on a machine that runs tests; without it there is no limit.

    Raises:
        RuntimeError: a rank raised an exception, which is its cause; no
            rank could go on, and the error names what each has waited for; or
            a rank has done nothing for ``idle_limit``.
        ValueError: the limit is no positive number of seconds.

    Example:
        >>> import torch.distributed as dist
        >>> def total():
        ...     x = torch.tensor([1.0 + dist.get_rank()], device="sim")
        ...     dist.all_reduce(x)
        ...     return x.item()
        >>> dpkit.sim.launch(total, 3)
        [6.0, 6.0, 6.0]
    """
    check_count("world_size", world_size)
    sim.register()
    # What a first launch imports would be there in half.
    with ctrl_c_deferred():
        sim.check_ranks(world_size)
        # Here, not above: all else works where torch lacks what ranks need.
        from dpkit.ranks.launching import run_ranks
        from dpkit.ranks.watching import limit_of

    limit = limit_of(idle_limit)
    return run_ranks(fn, world_size, args, algorithm, limit)
