"""What keeps experts equally busy.

A router that prefers an expert trains it more, and then prefers it more. Two
remedies are used. A second loss makes the router prefer no expert, and
disturbs what it learns. A bias, which only the choice sees, moves tokens from
busy experts to others, without a gradient.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from dpkit.arguments import check_tensor


def balance_loss(scores: Tensor) -> Tensor:
    """Return E times the sum of each expert's share × mean probability.

    The share is that of the tokens for which the expert is the first choice.
    It has no gradient; the probabilities have one. The loss is 1 where all E
    experts have equal shares, and at most E.

    Worked: two tokens, two experts, probabilities (0.9, 0.1) and (0.8, 0.2).
    Both choose expert 0: shares 1 and 0, means 0.85 and 0.15. The loss is
    2 · (1 · 0.85 + 0 · 0.15) = 1.7.

    Args:
        scores: What the router gives, of shape (tokens, E).

    Example:
        >>> import torch
        >>> from dpkit.experts import balance_loss
        >>> balance_loss(torch.tensor([[0.9, 0.1], [0.8, 0.2]]).log())
        tensor(1.7000)

    Source:
        W. Fedus, B. Zoph, N. Shazeer, Switch transformers, 2021,
        arXiv:2101.03961, equations 4 to 6.
    """
    num_experts = _num_experts(scores)
    first = F.one_hot(scores.argmax(1), num_experts)
    shares = first.to(scores.dtype).mean(0)
    return num_experts * (shares * scores.softmax(1).mean(0)).sum()


def _num_experts(scores: Tensor) -> int:
    """Return E, if scores are those of a router for some tokens."""
    check_tensor(scores)
    is_table = scores.dim() == 2 and 0 not in scores.shape
    if not (is_table and scores.is_floating_point()):
        raise ValueError(
            "the scores of a router have the shape (tokens, experts), with "
            "one of each at least, and are no whole numbers (scores: "
            f"{tuple(scores.shape)} {scores.dtype})"
        )
    return scores.shape[1]


def moved_bias(bias: Tensor, chosen: Tensor, step: float = 1e-3) -> Tensor:
    """Return the bias of the next step: lower for experts that are too busy.

    Args:
        bias: Of the choice, of shape (experts,).
        chosen: How many tokens of all ranks chose each expert.
        step: By how much a bias moves.

    Example:
        >>> import torch
        >>> from dpkit.experts import moved_bias
        >>> moved_bias(torch.zeros(3), torch.tensor([6, 2, 1]), step=0.1)
        tensor([-0.1000,  0.1000,  0.1000])

    Source:
        L. Wang et al., Auxiliary-loss-free load balancing strategy for
        mixture-of-experts, 2024, arXiv:2408.15664, algorithm 1.
    """
    load = chosen.to(bias.dtype)
    return bias + step * torch.sign(load.mean() - load)
