"""How ranks draw the random numbers of a DTensor.

DTensor asks an object, its tracker, to bring the generator into the state in
which a rank draws its shard. PyTorch's tracker counts in the 16 bytes that a
GPU's generator consists of. Simulated devices draw from the CPU's generator,
whose state is longer and cannot be counted on. So ranks have this tracker::

    DTensor on 2 ranks     rank 0 draws from     rank 1 draws from
    whole on each          the generator         the generator
    in 2 shards            seed 0                seed 1

The seeds are the next numbers of the generator, one for each shard. All ranks
draw all seeds, so that they go on alike afterwards.

Which numbers are one device's:

- A DTensor that is whole on every rank has the numbers that one device draws
  from the same seed, also the second and the third one.
- The shards of a DTensor differ, and together they are not what one device
  draws. Replicas of a shard are equal.
- What is drawn after a DTensor in shards is equal on all ranks, and is not
  what one device draws then.

PyTorch promises less on CUDA. There, too, shards differ, replicas are equal,
and all ranks go on alike. The first DTensor that is whole is one device's. The
next need not be: the generator goes on by the number of elements, where one
device goes on by what its kernel has used. As on CUDA, the first random
operation on a DTensor gives all ranks the state of rank 0, unless
``torch.distributed.tensor._random.manual_seed`` came before. The message is
on the CPU, and as long as the CPU's state: 5,056 bytes for a GPU's 16.

DTensor asks its tracker for the operations of its list alone: ``normal_``,
``uniform_``, ``bernoulli``, dropout, ``rand_like`` and the like. It has rules
for others, such as ``exponential_``, and draws them without it, as on CUDA:
then shards of one shape are equal.

Source:
    PyTorch 2.15, torch/distributed/tensor/_random.py and _dispatch.py.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.distributed.tensor import _random

from dpkit.sim.operators import default_generator

_Tracker: Any = _random.OffsetBasedRNGTracker


class ShardTracker(_Tracker):  # type: ignore[misc]
    """What DTensor asks before and after a rank draws its shard."""

    def _get_device_state(self) -> torch.Tensor:
        # On the CPU: there it has values, also where devices have none.
        return default_generator().get_state()

    @contextmanager
    def _distribute_region(
        self, spec: Any, generator: torch.Generator | None = None
    ) -> Iterator[None]:
        """Have a rank draw its shard inside; then let all go on alike.

        Raises:
            NotImplementedError: there is a generator, which DTensor does not
                pass on to what draws.
        """
        if not self.distribute_region_enabled:
            yield
            return
        if generator is not None:
            raise NotImplementedError(
                "a DTensor on simulated devices draws from the default "
                f"generator alone (given: one for {generator.device}); "
                "torch.manual_seed(…) seeds it"
            )
        with _drawing_a_shard(_generator_of(spec.mesh), *_shards(spec)):
            yield


@contextmanager
def _drawing_a_shard(default: Any, count: int, shard: int) -> Iterator[None]:
    """Draw one of several shards from its own seed."""
    if count == 1:
        yield
        return
    seeds = torch.randint(
        2**32, (count,), generator=default, device=default.device
    )
    after = default.get_state()
    default.manual_seed(int(seeds[shard]))
    try:
        yield
    finally:
        default.set_state(after)


def _generator_of(mesh: Any) -> Any:
    """Return the generator that operations on a mesh draw from."""
    on_sim = mesh.device_type == "sim"
    return default_generator() if on_sim else torch.default_generator


def _shards(spec: Any) -> tuple[int, int]:
    """Return how many shards a DTensor has, and the number of this rank's.

    On a mesh of 2 × 3 ranks whose axes both cut there are 6 shards, and the
    rank at (1, 2) has number 5. If only the second axis cuts, there are 3
    shards. The ranks at (0, 2) and (1, 2) both have number 2.
    """
    count = 1
    number = 0
    mesh = spec.mesh
    coordinates = mesh.get_coordinate()
    if coordinates is None:
        raise RuntimeError(
            f"a rank draws no shard on a mesh that it is not part of ({mesh})"
        )
    for coordinate, size, how in zip(coordinates, mesh.shape, spec.placements):
        if not (how.is_replicate() or how.is_partial()):
            count *= size
            number = number * size + coordinate
    return count, number
