"""Which experts each token goes to, and for which of them there is room.

Three tokens, four experts, the best two of each token::

    probability      a    b    c    d     first, second    their weights
    token 0        0.1  0.2  0.6  0.1     c, b             0.75, 0.25
    token 1        0.6  0.1  0.2  0.1     a, c             0.75, 0.25
    token 2        0.1  0.1  0.6  0.2     c, d             0.75, 0.25

The weights are the two probabilities, divided by their sum: 0.6/0.8 and
0.2/0.8. With one expert for each token the weight is its probability, so that
the router gets a gradient.

A *capacity* of 1 leaves each expert one token. All first choices come before
the second ones, and earlier tokens before later ones::

    c: token 0    a: token 1    c has no room for token 2    (first choices)
    b: token 0    c has no room for token 1    d: token 2    (second choices)

A token that finds no room in an expert is *dropped* there: that expert adds
nothing to its output. Weights do not change.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from dpkit.arguments import check_tensor
from dpkit.units import check_count


@dataclass(frozen=True)
class Routing:
    """The ways of tokens to experts, those of one expert together.

    Attributes:
        token: The number of a token, for each way, of shape (ways,).
        weight: How much the output of the expert counts, of shape (ways,).
        counts: The ways to each expert, of shape (experts,). So the first
            ``counts[0]`` ways lead to expert 0, and so on.
        chosen: The ways to each expert before any was dropped.

    Example:
        Token 1 goes to expert 0, tokens 0 and 2 to expert 1:

        >>> import torch
        >>> from dpkit.experts import route_tokens
        >>> scores = torch.tensor([[0.0, 1.0], [2.0, 0.0], [0.0, 3.0]])
        >>> ways = route_tokens(scores)
        >>> ways.token, ways.counts
        (tensor([1, 0, 2]), tensor([1, 2]))
    """

    token: Tensor
    weight: Tensor
    counts: Tensor
    chosen: Tensor


def route_tokens(
    scores: Tensor,
    top: int = 1,
    capacity: int | None = None,
    bias: Tensor | None = None,
) -> Routing:
    """Send each token to the experts with its highest probabilities.

    Args:
        scores: What the router gives, of shape (tokens, experts).
        top: How many experts a token goes to.
        capacity: How many tokens of these an expert takes; None: all. With a
            capacity, a device waits until the host knows what is dropped.
        bias: Added to the probabilities for the choice alone, of shape
            (experts,); None: nothing.

    Raises:
        ValueError: there are fewer experts than ``top``; or the shapes do not
            fit; or a number is not positive.

    Example:
        >>> import torch
        >>> from dpkit.experts import route_tokens
        >>> scores = torch.tensor(
        ...     [[.1, .2, .6, .1], [.6, .1, .2, .1], [.1, .1, .6, .2]]
        ... ).log()
        >>> ways = route_tokens(scores, top=2, capacity=1)
        >>> ways.token, ways.counts, ways.chosen
        (tensor([1, 0, 0, 2]), tensor([1, 1, 1, 1]), tensor([1, 1, 3, 1]))
        >>> ways.weight
        tensor([0.7500, 0.2500, 0.7500, 0.2500])

    Source:
        D. Lepikhin et al., GShard, 2020, arXiv:2006.16668, algorithm 1.
    """
    _check(scores, top, capacity, bias)
    num_tokens, num_experts = scores.shape
    probabilities = scores.softmax(-1)
    for_choice = probabilities.detach()
    if bias is not None:
        for_choice = for_choice + bias
    expert = for_choice.topk(top).indices
    weight = probabilities.gather(1, expert)
    if top > 1:
        weight = weight / weight.sum(1, keepdim=True)
    # All first choices, then all second choices.
    expert, weight = expert.T.flatten(), weight.T.flatten()
    token = torch.arange(num_tokens, device=scores.device).repeat(top)
    chosen = torch.bincount(expert, minlength=num_experts)
    if capacity is not None:
        kept = _place_in_queue(expert, num_experts) < capacity
        token, weight, expert = token[kept], weight[kept], expert[kept]
    order = expert.argsort(stable=True)
    return Routing(
        token=token[order],
        weight=weight[order],
        counts=torch.bincount(expert, minlength=num_experts),
        chosen=chosen,
    )


def _place_in_queue(expert: Tensor, num_experts: int) -> Tensor:
    """Return how many ways to the same expert come before each way."""
    # (ways, experts): 1 where a way leads to an expert.
    leads = torch.nn.functional.one_hot(expert, num_experts)
    return (leads.cumsum(0) * leads).sum(1) - 1


def _check(
    scores: Tensor, top: int, capacity: int | None, bias: Tensor | None
) -> None:
    """Raise an error for arguments that :func:`route_tokens` refuses."""
    check_count("top", top)
    if capacity is not None:
        check_count("capacity", capacity)
    check_tensor(scores)
    if scores.dim() != 2:
        raise ValueError(
            "the scores need the shape (tokens, experts) (given: "
            f"{tuple(scores.shape)})"
        )
    num_experts = scores.shape[1]
    if top > num_experts:
        raise ValueError(
            f"fewer experts than each token goes to (experts: {num_experts}, "
            f"top: {top})"
        )
    if bias is None:
        return
    check_tensor(bias)
    if bias.shape != (num_experts,):
        raise ValueError(
            f"the bias needs a number for each expert (experts: {num_experts}"
            f", given: {tuple(bias.shape)})"
        )
