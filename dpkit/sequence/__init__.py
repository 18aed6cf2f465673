"""Long sequences: attention when each rank has a part of every sequence.

All layers but attention compute one position at a time, so a rank computes
them on its part alone. In attention a query meets the keys and values of all
positions. Two ways to bring them together, on ranks 0, 1 and 2::

    ring       queries stay, keys and values go round
               rank 0: kv0 kv2 kv1   rank 1: kv1 kv0 kv2   rank 2: kv2 kv1 kv0

    Ulysses    an all-to-all: all positions of some heads on each rank, where
               attention is ordinary; another one, and all heads are back

The ranks are those of a group of ``torch.distributed``: processes, or ranks of
:func:`dpkit.sim.launch`.

``cut`` -- which positions a rank has, in order or balanced: begin here;
``running_softmax`` -- a softmax over keys that arrive in blocks;
``block_attention`` -- that of a block of queries on a block of keys, and back;
``messages`` -- what goes to the next rank of the ring;
``ring`` -- ring attention, forward and backward;
``ulysses`` -- attention by two all-to-alls;
``cpu_kernel`` -- PyTorch's ``context_parallel`` where there is no GPU.

Source:
    H. Liu, M. Zaharia, P. Abbeel, Ring attention with blockwise transformers
    for near-infinite context, 2023, arXiv:2310.01889; S. A. Jacobs et al.,
    DeepSpeed Ulysses, 2023, arXiv:2309.14509.
"""

from dpkit.sequence.block_attention import BY_PRODUCTS, FUSED, BlockKernel
from dpkit.sequence.cpu_kernel import use_cpu_kernel_in_ring
from dpkit.sequence.cut import join_sequence, own_part, pieces, positions
from dpkit.sequence.messages import PassedOn
from dpkit.sequence.ring import RingAttention, ring_attention
from dpkit.sequence.running_softmax import (
    PartialAttention,
    merge_attention,
    partial_attention,
)
from dpkit.sequence.ulysses import ulysses_attention

__all__ = [
    "BY_PRODUCTS",
    "BlockKernel",
    "FUSED",
    "PartialAttention",
    "PassedOn",
    "RingAttention",
    "join_sequence",
    "merge_attention",
    "own_part",
    "partial_attention",
    "pieces",
    "positions",
    "ring_attention",
    "ulysses_attention",
    "use_cpu_kernel_in_ring",
]
