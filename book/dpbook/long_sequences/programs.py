"""What each rank runs: attention of its part, and a model in parts."""

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F

from dpbook.long_sequences.runs import Attention, attention_of
from dpkit import devices
from dpkit.processes import rank_device
from dpkit.sequence import (
    BY_PRODUCTS,
    join_sequence,
    own_part,
    use_cpu_kernel_in_ring,
)

SHAPE = 2, 4, 48, 6  # sequences, heads, positions, numbers of a head
LENGTH, NUM_TOKENS, WIDTH = 32, 20, 16


def whole() -> list[Tensor]:
    """Return queries, keys, values and a gradient, equal on all ranks."""
    generator = torch.Generator().manual_seed(0)
    return [
        torch.randn(SHAPE, generator=generator, dtype=torch.float64)
        for _ in range(4)
    ]


def attend(way: str, causal: bool) -> list[Tensor]:
    """Return this rank's part of the outputs and of three gradients.

    Args:
        way: As for :func:`dpbook.long_sequences.runs.attention_of`.
        causal: Whether a position sees none that come later.
    """
    rank, k = dist.get_rank(), dist.get_world_size()
    balanced = way == "balanced ring"
    parts = [
        own_part(x, 2, rank=rank, world_size=k, balanced=balanced)
        for x in whole()
    ]
    *three, gradient = (x.to(rank_device()) for x in parts)
    found = with_gradients(
        attention_of(way, causal, BY_PRODUCTS), three, gradient
    )
    return [x.cpu() for x in found]


def with_gradients(
    attention: Attention, three: list[Tensor], gradient: Tensor
) -> list[Tensor]:
    """Return the outputs of q, k and v, and the gradients of these."""
    q, k, v = (x.requires_grad_() for x in three)
    output = attention(q, k, v)
    gradients = torch.autograd.grad(output, (q, k, v), gradient)
    return [output.detach(), *gradients]


def largest_difference(
    ranks: list[list[Tensor]], way: str, causal: bool
) -> float:
    """Return how far what all ranks have is from one device's attention."""
    (device,) = devices(1)
    *three, gradient = (x.to(device) for x in whole())
    one = attention_of("one device", causal)
    expected = [x.cpu() for x in with_gradients(one, three, gradient)]
    balanced = way == "balanced ring"
    return max(
        float((join_sequence(parts, 2, balanced) - x).abs().max())
        for parts, x in zip(zip(*ranks), expected, strict=True)
    )


class Block(nn.Module):
    """Attention and two dense layers, each added to its input."""

    def __init__(self, num_heads: int = 4) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.project = nn.Linear(WIDTH, 3 * WIDTH)
        self.output = nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return (b, s, width) of (b, s, width)."""
        heads = self.project(x).unflatten(2, (3, self.num_heads, -1))
        # (b, s, 3, heads, size) -> three of (b, heads, s, size)
        q, k, v = heads.permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.output(y.transpose(1, 2).flatten(2))
        z: Tensor = x + self.mlp(x)
        return z


class LanguageModel(nn.Module):
    """A small transformer, which is given the positions of its tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(NUM_TOKENS, WIDTH)
        self.places = nn.Embedding(LENGTH, WIDTH)
        nn.init.normal_(self.tokens.weight, std=0.02)
        nn.init.normal_(self.places.weight, std=0.02)
        self.blocks = nn.Sequential(Block(), Block())
        self.scores = nn.Linear(WIDTH, NUM_TOKENS)

    def forward(self, tokens: Tensor, places: Tensor) -> Tensor:
        """Return scores (b, s, tokens) of tokens (b, s) at places (s,)."""
        x = self.tokens(tokens) + self.places(places)
        scores: Tensor = self.scores(self.blocks(x))
        return scores


def example() -> tuple[LanguageModel, Tensor, Tensor]:
    """Return a model, tokens and those that come next, equal everywhere."""
    torch.manual_seed(0)
    model = LanguageModel().double()
    text = torch.randint(NUM_TOKENS, (3, LENGTH + 1))
    return model, text[:, :-1].contiguous(), text[:, 1:].contiguous()


def loss_of(scores: Tensor, targets: Tensor) -> Tensor:
    """Return the mean loss over positions."""
    return F.cross_entropy(scores.flatten(0, 1), targets.flatten())


def gradients_of_one_device() -> list[Tensor]:
    """Return the gradients of all parameters, of the whole sequences."""
    (device,) = devices(1)
    model, tokens, targets = example()
    model = model.to(device)
    scores = model(tokens.to(device), torch.arange(LENGTH, device=device))
    loss_of(scores, targets.to(device)).backward()
    return [p.grad.cpu() for p in model.parameters() if p.grad is not None]


def step_in_parts(
    model: LanguageModel, tokens: Tensor, targets: Tensor, places: Tensor
) -> None:
    """Compute the gradients of a step by PyTorch's context_parallel.

    All ranks give the same model and whole sequences.
    """
    # Here, not above: they take a second.
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.experimental import context_parallel

    k = dist.get_world_size()
    mesh = init_device_mesh(tokens.device.type, (k,))
    with context_parallel(
        mesh,
        buffers=[tokens, targets, places],
        buffer_seq_dims=[1, 1, 0],
    ):
        loss = loss_of(model(tokens, places), targets) / k
        loss.backward()
    for p in model.parameters():
        if p.grad is not None:
            dist.all_reduce(p.grad)


def gradients_in_parts() -> list[Tensor]:
    """Return the gradients that this rank has after a step in parts."""
    use_cpu_kernel_in_ring()
    device = rank_device()
    model, tokens, targets = example()
    model = model.to(device)
    places = torch.arange(LENGTH, device=device)
    step_in_parts(model, tokens.to(device), targets.to(device), places)
    return [p.grad.cpu() for p in model.parameters() if p.grad is not None]
