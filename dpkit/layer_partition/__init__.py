"""Layer partitioning: every device has a part of each layer.

A linear layer can be cut in two ways, by its outputs or by its inputs::

    column parallel                 row parallel

    [W0]       [W0 x]               [W0 W1] [x0]  =  W0 x0 + W1 x1
    [W1]  x  = [W1 x]                       [x1]

    takes replicas, gives shards    takes shards, gives replicas: an allreduce

A tensor of the network is a list with one tensor for each rank, ``xs[rank]``
on ``devices[rank]``. They are either *replicas*, equal on all devices, or
*shards*, pieces of one tensor. The modules take and give such lists, so they
stack in an ``nn.Sequential``. Gradients follow: those of replicas are
replicas, those of shards are shards.

Every rank ends with its own loss, equal to the others', and backward
starts from all of them: ``torch.autograd.backward(losses)``.

Begin with ``linear``, then ``conjugates``, the communication in it.
``convolution``, ``attention`` and ``vocabulary`` split other layers;
``replicated`` has what is not split, ``shards`` the sizes and parameters of
parts, ``whole`` makes one ordinary module of the network.
"""

from dpkit.layer_partition.attention import HeadParallelAttention
from dpkit.layer_partition.conjugates import (
    allgather_forward,
    allreduce_backward,
    allreduce_forward,
    reduce_scatter_backward,
    spread,
    take_one,
)
from dpkit.layer_partition.convolution import ChannelParallelConv2d
from dpkit.layer_partition.linear import (
    ColumnParallelLinear,
    ParallelMLP,
    RowParallelLinear,
)
from dpkit.layer_partition.replicated import Joined, Replicated, Residual
from dpkit.layer_partition.shards import even_sizes
from dpkit.layer_partition.vocabulary import (
    VocabParallelEmbedding,
    vocab_parallel_cross_entropy,
)
from dpkit.layer_partition.whole import LayerParallel, copies, full_tensors

__all__ = [
    "ChannelParallelConv2d",
    "ColumnParallelLinear",
    "HeadParallelAttention",
    "Joined",
    "LayerParallel",
    "ParallelMLP",
    "Replicated",
    "Residual",
    "RowParallelLinear",
    "VocabParallelEmbedding",
    "allgather_forward",
    "allreduce_backward",
    "allreduce_forward",
    "copies",
    "even_sizes",
    "full_tensors",
    "reduce_scatter_backward",
    "spread",
    "take_one",
    "vocab_parallel_cross_entropy",
]
