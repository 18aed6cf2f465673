"""Ranks as processes that are forked from this one, on one simulated clock.

``running`` -- begin here: the processes, and how they end; ``host_memory``,
what is known where memory has run out;
``proxy`` -- the thread of the launch that does what a process asks for;
``requests`` -- the connection on which a rank asks, and is answered;
``signals``, which never cut a request in half;
``other_programs``, which a rank cannot become;
``idle`` -- a watch over ranks that all wait;
``clock`` -- what stands in for the simulated clock in a rank;
``group`` -- a process group, in a rank; ``store``, its keys and values;
``nccl_rules``, what NCCL refuses where these ranks could go on;
``packing`` -- tensors in memory that two processes share.

Each process has a Python of its rank alone, with everything that a program has
once: arguments, signals, modules, random numbers. It computes the values of
one device. It neither keeps time nor sends anything: it asks for that::

    process of rank 1                     parent
    x @ y        computes the values
                 "compute, 14 µs"  ──▶    thread of rank 1: Clock.compute
    all_reduce   "allreduce, here" ──▶    thread of rank 1: SimGroup
    work.wait()  "wait"            ──▶    thread of rank 1 lets others run
                 copies the sum    ◀──    the allreduce is over

So the parent is a launch like that of ``dpkit.sim.launch``, whose ranks are
threads that take turns, and do what their processes have asked for, in order.
Times, values and errors are those of a launch. The processes run at the same
time, and ahead of the clock, until they need an answer.
"""

from dpkit.sim.places import runs_beneath

runs_beneath(__path__[0])
