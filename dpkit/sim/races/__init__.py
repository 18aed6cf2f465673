"""Races: uses of one memory that nothing orders, for ``trace(races=True)``.

The values of simulated devices are computed at once, so a missing wait does
not change them. Here it is looked for in another way::

    sim:0 compute    write x    record event
    sim:0 stream 1                 wait event    read x     after the write
    sim:0 stream 2                 read x                   a race

What happens before what is in ``dpkit.sim.clock.order``.

``checker`` -- begin here: what is noted, what it orders, and what is a race;
``shadows`` -- the accesses to a storage that matter to later ones;
``extents`` -- the bytes that a tensor occupies in its storage;
``autograd`` -- the streams that CUDA's backward runs in;
``host`` -- what PyTorch does on the CPU.
"""

from dpkit.sim.races.checker import Races as Races
