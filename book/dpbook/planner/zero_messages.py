"""The messages by which replicas share what ZeRO divides.

A ring of d ranks takes d - 1 rounds for a reduce-scatter or an allgather. A
round takes some microseconds, however few its bytes are. So the same bytes in
more messages take longer::

    seconds = messages · (d - 1) · seconds of a round + bytes / rate

175 billion weights of 2 bytes, gathered once over 1,536 A100s in 192 nodes.
A ring has 192 rounds of 5 µs between nodes and 1,343 of 2.1 µs inside, each
times 2.5 for large pieces, which is 9.5 ms; 192 GB/s enter a node::

    messages                     rounds      bytes     together
    1      the whole model       0.01 s      1.82 s      1.83 s
    96     one for each block    0.91 s      1.82 s      2.73 s
    384    one for each matrix   3.63 s      1.82 s      5.45 s

A program with PyTorch's ``fully_shard`` sends a message for each block. That
is ``BY_BLOCK``, which a ``Case`` has unless it is given another.

DeepSpeed of spring 2021 sends one message for each tensor, ``BY_TENSOR``. A
layer of GPT has four matrices, and eight vectors: its biases, and those of
its norms. With the settings that the library then had by default::

    gathered       forward 4 matrices, computed again 4, backward 3: the last
                   one of the layer is still there, 4/12 of its parameters.
                   Vectors of fewer than 100,000 elements are always whole.
    reduced        all 12 tensors, in 16 bits as they are
    copied         PyTorch hands each rank's piece of a message out, or
                   takes it in, as a tensor of its own: a copy and two views
                   for each rank, which the host issues one by one
    waited for     the device, before each gather

So a message keeps the host for d pieces: on 1,536 ranks 1,536 · (5 + 2 · 1.5
µs) = 12 ms, by the preset for bare operations.

Left out: what part of the pieces the host issues while a ring turns, and what
the device takes to copy them.

Source:
    microsoft/DeepSpeed, v0.3.13 of March 2021, deepspeed/runtime/zero:
    partition_parameters.py (_allgather_param, _reduce_scatter_gradient),
    stage3.py (fetch_sub_module, _keep_for_later) and constants.py; its pull
    request 1188, by which a gather "is not async at all", as each waits for
    the device, and issue 1069, where a user timed small ones at 0.5 ms.
    PyTorch, commit 00f5dfd, torch/lib/c10d/ProcessGroupNCCL.cpp (allgather,
    reduce_scatter), for the pieces.
"""

from typing import NamedTuple

from dpkit.sim.hardware import HOSTS

#: What the host takes for a rank's piece of a message: a copy, issued without
#: Python, and two views.
PIECE_SECONDS = HOSTS["eager"].issuing(1, 2, in_backward=True)


class ZeroMessages(NamedTuple):
    """The messages of a block, for each micro-batch."""

    gathers: int  #: by which ZeRO-3 gathers its weights
    gathered: float  #: how often each of its weights is gathered
    reductions: int  #: by which ZeRO-2 or 3 reduces its gradients
    gradient_bytes: int  #: the bytes of a gradient on its way
    #: Whether the host issues a copy for each rank's piece of a message.
    in_pieces: bool = False

    def host_seconds(self, num_ranks: int) -> float:
        """Return what a message keeps the host, besides the ring.

        Example:
            >>> f"{1e3 * BY_TENSOR.host_seconds(1536):.1f} ms"
            '12.3 ms'
            >>> BY_BLOCK.host_seconds(1536)
            0.0
        """
        return num_ranks * PIECE_SECONDS if self.in_pieces else 0.0


BY_BLOCK = ZeroMessages(gathers=2, gathered=2, reductions=1, gradient_bytes=4)
BY_TENSOR = ZeroMessages(
    gathers=11,
    gathered=3 - 4 / 12,
    reductions=12,
    gradient_bytes=2,
    in_pieces=True,
)
