"""Steps of sharded data parallelism: their time, memory and traffic."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from dpkit import Timer, devices, sim, synchronize
from dpkit.sharding import Copied, Passes, Zero1, Zero2, Zero3
from dpkit.sim.timeline import Timeline

Engine = Callable[..., Passes]
WAYS: dict[str, Engine] = {
    way: partial(Zero3, gather=way)
    for way in ("just in time", "prefetched", "too late")
}
STAGES: dict[int, Engine] = {0: Copied, 1: Zero1, 2: Zero2, 3: Zero3}
WATCHED = "sim:1"  # the device whose memory and traffic are returned


@dataclass
class Step:
    """A training step on simulated devices, as one of them sees it.

    Attributes:
        timeline: Of the whole step.
        seconds: Those of forward and backward, simulated.
        peak: The most bytes alive during forward and backward.
        kept: The bytes alive after the optimizer's step, without the batch:
            parameters, gradients and the optimizer's state.
    """

    timeline: Timeline
    seconds: float
    peak: int
    kept: int

    @property
    def total_seconds(self) -> float:
        """The seconds of the whole step, the optimizer's part included."""
        return self.timeline.makespan

    @property
    def sent(self) -> int:
        """The bytes that the device sent in the step."""
        return self.timeline.summary().devices[WATCHED].bytes_sent


def dense_blocks(width: int = 1024, count: int = 6) -> list[nn.Module]:
    """Return blocks of two dense layers, as in a transformer.

    Each has 8·width² + 5·width parameters.
    """
    return [
        nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        for _ in range(count)
    ]


def adam(shards: list[torch.Tensor]) -> torch.optim.Optimizer:
    """Return Adam with its usual settings."""
    return torch.optim.Adam(shards, lr=1e-3)


def simulated_step(
    engine: Engine,
    *,
    rows: int = 1024,
    width: int = 1024,
    count: int = 6,
    num_devices: int = 4,
    batches: int = 1,
    dtype: torch.dtype = torch.float32,
    **machine: Any,
) -> Step:
    """Take two steps by hand, and return the second.

    In the first, of one batch, Adam has no averages yet. Each device has a
    host. No value is computed.

    Args:
        engine: A class of ``dpkit.sharding``, such as ``Zero3``.
        rows: The examples of each batch, on each device.
        width: The values that go into each block and come out of it.
        count: How many blocks there are.
        num_devices: How many devices share the shards.
        batches: Those of a step, whose gradients add up.
        dtype: That of the examples.
        **machine: What :func:`dpkit.sim.machine` changes, by name.
    """
    settings = {"backing": "meta", "hosts": "per_device", **machine}
    with sim.machine(**settings):
        ranks = devices(num_devices, "sim")
        with ranks[0]:
            parallel = engine(dense_blocks(width, count), ranks, adam)
        xs = [torch.zeros(rows, width, dtype=dtype, device=d) for d in ranks]
        _step(parallel, xs, batches=1)
        return _step(parallel, xs, batches)


def _step(parallel: Passes, xs: Sequence[torch.Tensor], batches: int) -> Step:
    ranks = parallel.devices
    parallel.zero_grad()
    synchronize(ranks)
    watched = torch.get_device_module("sim")
    watched.reset_peak_memory_stats(WATCHED)
    with sim.trace() as timeline:
        with Timer(ranks) as timer:
            for _ in range(batches):
                parallel.forward_backward_parts(xs, xs, nn.MSELoss())
        peak = watched.max_memory_allocated(WATCHED)
        parallel.step()
        synchronize(ranks)
    kept = watched.memory_allocated(WATCHED) - xs[0].nbytes
    return Step(timeline, seconds=timer.seconds, peak=peak, kept=kept)
