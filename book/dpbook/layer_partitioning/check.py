"""The checks of the exercises on layer partitioning."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from dpbook.common.required_messages import require_ports, require_sent
from dpbook.exercises.verdict import Answer, require
from dpkit import devices
from dpkit.layer_partition import even_sizes
from dpkit.traffic import Traffic

ROW = 5  # the values of a position


def check_sequence_parallel_norm(answer: Answer) -> None:
    """The norm of the sum on all ranks, each position normed once."""
    for k, length in ((1, 4), (2, 6), (3, 7), (4, 9)):
        ranks = devices(k, "sim")
        generator = torch.Generator().manual_seed(k)
        wholes = torch.randn(k, length, ROW, generator=generator)
        terms = _each_on(wholes, ranks)
        norm = nn.LayerNorm(ROW)
        norms = [_Counting(ROW).to(d) for d in ranks]
        case = f"{length} positions on {k} devices"
        with Traffic() as traffic, torch.no_grad():
            found = answer(terms, norms)
            expected = norm(wholes.sum(dim=0))
        _require_tensors(found, expected, ranks, case)
        seen = [own.seen for own in norms]
        shares = even_sizes(length, k)
        why = f"{case}: the devices norm {seen} positions, where {shares} do"
        require(sorted(seen) == sorted(shares), why)
        # A rank's own positions go to or come from k - 1 others, and it has
        # those of the others. 7 positions on 3 devices: 2 * 3 + 7 - 2 = 11.
        most = (k - 1) * max(shares) + length - length // k
        require_ports(traffic, ranks, most * 4 * ROW, case)


class _Counting(nn.LayerNorm):
    """A norm that adds up the rows that it is given."""

    seen = 0

    def forward(self, x: Tensor) -> Tensor:
        self.seen += len(x)
        return super().forward(x)


def _each_on(
    parts: Sequence[Tensor] | Tensor, ranks: Sequence[torch.device]
) -> list[Tensor]:
    """Return a copy of each part on its device."""
    return [part.to(d, copy=True) for part, d in zip(parts, ranks)]


def _require_tensors(
    found: Any, expected: Tensor, ranks: Sequence[torch.device], case: str
) -> None:
    """Require one tensor of the expected values on each device."""
    kind = type(found).__name__
    k = len(ranks)
    is_list = isinstance(found, list | tuple) and len(found) == k
    require(is_list, f"it returned {kind}, not a list of {k} tensors")
    for rank, (tensor, device) in enumerate(zip(found, ranks, strict=True)):
        why = f"{case}: what rank {rank} has does not lie on {device}"
        there = isinstance(tensor, Tensor) and tensor.device == device
        require(there, why)
        right = tensor.shape == expected.shape and torch.allclose(
            tensor.cpu(), expected, atol=1e-5
        )
        require(right, f"{case}: rank {rank} is wrong")


def check_gradient_norm(answer: Answer) -> None:
    """The norm of all gradients, from one value of each device."""
    for k in (1, 2, 3):
        ranks = devices(k, "sim")
        generator = torch.Generator().manual_seed(k)
        weight = torch.randn(5, 4, generator=generator)
        biases = [torch.randn(n, generator=generator) for n in (6, 3)]
        shards = _each_on(weight.tensor_split(k), ranks)
        copies = [_each_on([bias] * k, ranks) for bias in biases]
        with Traffic() as traffic:
            found = answer(shards, copies)
        require(found is not None, "it returned None, not a number")
        expected = float(torch.cat([weight.flatten(), *biases]).norm())
        norm = float(found)
        why = f"it returned {norm:.4f}, expected {expected:.4f}"
        require(abs(norm - expected) < 1e-4, f"on {k} devices {why}")
        limit = 8 * (k + len(copies))
        require_sent(traffic.sent.total(), limit, f"on {k} devices")


def check_likeliest_words(answer: Answer) -> None:
    """The first of the largest scores, and two values from each device."""
    for k, num_words in ((1, 5), (2, 7), (3, 11), (4, 6), (4, 14)):
        ranks = devices(k, "sim")
        generator = torch.Generator().manual_seed(k)
        scores = torch.randint(4, (9, num_words), generator=generator)
        scores[8, -1] = 4  # on the last device
        shards = _each_on(scores.float().tensor_split(k, dim=1), ranks)
        with Traffic() as traffic:
            found = answer(shards)
        expected = (scores == scores.amax(1, keepdim=True)).int().argmax(1)
        why = f"it returned {found!r}, not a tensor on {ranks[0]}"
        require(isinstance(found, Tensor) and found.device == ranks[0], why)
        case = f"{num_words} words on {k} devices"
        wrong = (found.cpu() != expected).nonzero().flatten().tolist()
        require(not wrong, f"{case}: examples {wrong} are wrong")
        # 9 examples: a score in 4 bytes and a place in 8 for each.
        require_sent(traffic.sent.total(), (k - 1) * 9 * (4 + 8), case)
