"""What the host of an eager program takes to launch a layer.

A layer takes the longer of two: what the device does for it, messages of its
tensor group included, and what the host takes to launch it. The host runs
ahead, so that the device waits only where the host has more to do.

A layer of plain modules in eager PyTorch, its weights in 16 bits, launches::

                                  forward           backward
                               kernels  views    kernels  views
    GPT, attention one kernel     12      22        21      49
    GPT, attention in parts       16      33        28      60
    Llama                         38      34        65      70
    the same, with experts        52      49        88      81

Llama's norms and rotary positions are many small kernels. A layer of 7B, on
the host ``eager-program`` (30 µs a launch, 19 in backward, 5.6 a view)::

    forward      38 · 30 + 34 · 5.6 = 1.33 ms
    backward     65 · 19 + 70 · 5.6 = 1.63 ms      both 2.96 ms

    4,096 tokens on H100s        one device    8 share the layer
    the device, and messages       12.51           2.46 ms
    the host, and collectives       2.96           3.26 ms
    the layer takes                12.51           3.26 ms

A compiled program launches few kernels, and a CUDA graph one for all of them:
there the device alone counts. Left out are the casts of autocast, the hooks
of ``fully_shard``, what Python does to choose what selective recomputation
keeps, and what is launched once a step.

Source:
    ``tests/book/eager_layers.py``, whose launches are counted on simulated
    devices (tests/book/test_launches.py).
"""

from typing import NamedTuple

from dpbook.formulas.transformer import Transformer
from dpkit.sim.hardware import Host


class Launches(NamedTuple):
    """How many operations a host issues."""

    kernels: float  #: operations that run on the device
    views: float  #: operations that launch nothing


class LaunchCounts(NamedTuple):
    """How much a host issues in forward, and how much in backward."""

    forward: Launches
    backward: Launches

    def seconds(self, host: Host) -> float:
        """Return the time in which a host issues all of them."""
        return host.issuing(*self.forward, in_backward=False) + host.issuing(
            *self.backward, in_backward=True
        )


NO_LAUNCHES = LaunchCounts(Launches(0, 0), Launches(0, 0))
LAYERS = {
    "GPT": LaunchCounts(Launches(12, 22), Launches(21, 49)),
    "GPT, attention in parts": LaunchCounts(
        Launches(16, 33), Launches(28, 60)
    ),
    "Llama": LaunchCounts(Launches(38, 34), Launches(65, 70)),
    "experts": LaunchCounts(Launches(52, 49), Launches(88, 81)),
}
# How many kernels in forward are products, and one is attention. Selective
# recomputation keeps what they give.
NUM_PRODUCTS = {"GPT": 4 + 1, "Llama": 7 + 1}


def layer_launches(
    model: Transformer,
    num_collectives: int = 0,
    twice: bool = False,
    with_products: bool = True,
) -> LaunchCounts:
    """Return what a host issues for a layer and a micro-batch.

    A model whose MLP is gated is taken for one like Llama. The experts of a
    device are computed by one kernel for each of their products. A collective
    of the tensor group is one more launch.

    Args:
        model: That of the layer.
        num_collectives: Those of its tensor group.
        twice: Whether backward computes the layer again: Python launches it
            once more, as in forward.
        with_products: Whether this includes products and fused attention.

    Example:
        >>> from dpkit.sim.hardware import HOSTS
        >>> llama = Transformer(layers=32, hidden=4096, heads=32,
        ...                     vocabulary=32_000, sequence=4096, gated=True)
        >>> host = HOSTS["eager-program"]
        >>> f"{1e3 * layer_launches(llama).seconds(host):.2f} ms"
        '2.96 ms'
    """
    name = "GPT" if model.fused else "GPT, attention in parts"
    if model.gated:
        name = "experts" if model.experts else "Llama"
    forward, backward = LAYERS[name]
    times = 2 if twice else 1
    kernels = times * forward.kernels + num_collectives
    if twice and not with_products:
        kernels -= NUM_PRODUCTS["Llama" if model.gated else "GPT"]
    return LaunchCounts(Launches(kernels, times * forward.views), backward)
