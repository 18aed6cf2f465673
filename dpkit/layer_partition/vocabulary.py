"""Embedding and loss of which every device has a part of the vocabulary."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dpkit.arguments import (
    Devices,
    check_scores,
    one_per_device,
    tensor_list,
)
from dpkit.collectives import allreduce
from dpkit.layer_partition.conjugates import allreduce_forward
from dpkit.layer_partition.shards import (
    Pick,
    SplitModule,
    check_layer,
    check_plain,
    checked_sizes,
    joined,
    shards_of,
)

PLAIN_EMBEDDING: dict[str, object] = {
    "padding_idx": None,
    "max_norm": None,
    "scale_grad_by_freq": False,
    "sparse": False,
}


class VocabParallelEmbedding(SplitModule):
    """An embedding of which each device has the rows of some words.

    It takes replicas of the words' numbers and gives replicas of their rows:
    a device that does not have a word gives zeros, and an allreduce adds up,
    by ``algorithm``.
    :class:`dpkit.ColumnParallelLinear` splits its outputs as the rows are
    split, so the two can share their ``weights``. The row of a word that does
    not exist is NaN: to raise an error, Python would wait for the device.

    Raises:
        ValueError: the embedding has options, such as a padding word.

    Example:
        >>> from dpkit.layer_partition import VocabParallelEmbedding
        >>> devices = dpkit.devices(2, kind="sim")
        >>> table = VocabParallelEmbedding(nn.Embedding(7, 3), devices)
        >>> words = [torch.tensor([[6, 0]], device=d) for d in devices]
        >>> table(words)[1].shape
        torch.Size([1, 2, 3])

    Source:
        M. Shoeybi et al., Megatron-LM, 2019, section 3.
    """

    def __init__(
        self,
        embedding: nn.Embedding,
        devices: Devices,
        algorithm: str = "ring",
    ) -> None:
        super().__init__()
        check_layer("embedding", embedding, nn.Embedding, devices, algorithm)
        self.algorithm = algorithm
        check_plain(embedding, "an embedding", PLAIN_EMBEDDING)
        num_words = embedding.num_embeddings
        sizes = checked_sizes(None, num_words, "words", devices)
        self.weights = nn.ParameterList(
            shards_of(embedding.weight, sizes, devices)
        )

    def forward(self, tokens: Sequence[Tensor]) -> list[Tensor]:
        """Return replicas (…, features) of replicas (…) of whole numbers."""
        tokens = one_per_device(tokens, len(self.weights))
        sizes = [len(weight) for weight in self.weights]
        rows = _looked_up(
            tokens, sizes, lambda rank, x: F.embedding(x, self.weights[rank])
        )
        return allreduce_forward(rows, self.algorithm)

    def full_tensors(self, pick: Pick) -> dict[str, Tensor]:
        """Return what is picked of the rows, joined, by name."""
        return {"weight": joined([pick(weight) for weight in self.weights])}


def vocab_parallel_cross_entropy(
    logit_shards: Sequence[Tensor],
    targets: Sequence[Tensor],
    algorithm: str = "ring",
) -> list[Tensor]:
    """Return the mean cross-entropy on every device, from shards of scores.

    The scores themselves are never gathered. For each example three numbers
    go round, in an allreduce each: the largest score, the sum of
    exponentials, and the score of the target. Backward sends nothing.

    The shards are k tensors (b, words of r), each on its device; the targets
    k replicas (b,) of the numbers of the right words. One outside of the
    vocabulary makes the loss NaN. ``algorithm`` is that of the allreduces.

    Example:
        >>> from dpkit.layer_partition import vocab_parallel_cross_entropy
        >>> devices = dpkit.devices(2, kind="sim")
        >>> scores = [torch.zeros(3, n, device=d)
        ...           for n, d in zip((6, 4), devices)]
        >>> targets = [torch.tensor([9, 0, 5], device=d) for d in devices]
        >>> loss, _ = vocab_parallel_cross_entropy(scores, targets)
        >>> round(loss.item(), 4)  # guessing one of 10: ln 10
        2.3026

    Source:
        M. Shoeybi et al., Megatron-LM, 2019, section 3, for the idea.
    """
    logit_shards = tensor_list(logit_shards, least=1)
    targets = one_per_device(targets, len(logit_shards))
    for x, y in zip(logit_shards, targets, strict=True):
        check_scores(x, y)
    # The largest is subtracted for the sake of range; it has no gradient.
    largest = [x.detach().amax(dim=1) for x in logit_shards]
    allreduce(largest, "max", algorithm)
    shifted = [
        x - m.unsqueeze(1) for x, m in zip(logit_shards, largest, strict=True)
    ]
    sums = [x.exp().sum(dim=1) for x in shifted]
    sums = allreduce_forward(sums, algorithm)
    sizes = [x.shape[1] for x in shifted]

    def scores_of(rank: int, local: Tensor) -> Tensor:
        return shifted[rank].gather(1, local.unsqueeze(1)).squeeze(1)

    scores = _looked_up(targets, sizes, scores_of)
    scores = allreduce_forward(scores, algorithm)
    return [
        (total.log() - score).mean()
        for total, score in zip(sums, scores, strict=True)
    ]


def _looked_up(
    words: Sequence[Tensor],
    sizes: Sequence[int],
    find: Callable[[int, Tensor], Tensor],
) -> list[Tensor]:
    """Return what each device finds: else zeros, or NaN for no word."""
    # Words 5 6 0 9 on rank 1, sizes 4 and 3: its words are 4, 5 and 6.
    # local  1 2 -4 5, of which it finds the first two; 0 is another's; 9: NaN
    values = []
    start = 0
    for rank, (word, size) in enumerate(zip(words, sizes, strict=True)):
        local = word - start
        own = (local >= 0) & (local < size)
        found = find(rank, local.clamp(0, size - 1))
        known = (word >= 0) & (word < sum(sizes))
        values.append(_where(known, _where(own, found, 0.0), torch.nan))
        start += size
    return values


def _where(mask: Tensor, found: Tensor, other: float) -> Tensor:
    """Keep what is found where the mask says so, or a row of it."""
    if found.dim() > mask.dim():
        mask = mask.unsqueeze(-1)
    return torch.where(mask, found, other)
