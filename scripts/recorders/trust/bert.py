"""BERT-large, as it was trained on one GPU, simulated.

A layer is that of its time: attention runs kernel by kernel, and a norm
stands behind each sum. In mixed precision all numbers of the network are
float16, and the optimizer has a copy of the weights in float32.

Source:
    NVIDIA/DeepLearningExamples, commit b2763ae,
    PyTorch/LanguageModeling/BERT: modeling.py, run_pretraining.py,
    run_squad.py. Left out: loading words, scaling the loss, and that another
    kernel added the bias before GELU. LAMB is simulated as Adam.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dpkit import sim
from dpkit.machine import Timer, devices
from recorders.trust.transformer_layer import dropped

HIDDEN = 1024
HEADS = 16
LAYERS = 24
POSITIONS = 512
WORDS = 30528  # 30,522, and some that round it to a multiple of 8
REPEATED = 5  # steps that are timed together


class Attention(nn.Module):
    """Attention of which each operation is a kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.ModuleList(nn.Linear(HIDDEN, HIDDEN) for _ in "qkv")
        self.output = nn.Linear(HIDDEN, HIDDEN)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Take and return (b, s, hidden); add ``mask`` to the scores."""
        q, k, v = (
            linear(x).unflatten(2, (HEADS, -1)).transpose(1, 2)
            for linear in self.project
        )  # each (b, heads, s, size)
        scores = q @ k.transpose(2, 3) / q.shape[3] ** 0.5
        if mask is not None:
            scores = scores + mask
        y = dropped(scores.softmax(dim=3)) @ v
        result: Tensor = self.output(y.transpose(1, 2).flatten(2))
        return result


class Layer(nn.Module):
    """A layer of BERT-large."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = Attention()
        self.first = nn.Linear(HIDDEN, 4 * HIDDEN)
        self.second = nn.Linear(4 * HIDDEN, HIDDEN)
        self.norms = nn.ModuleList(nn.LayerNorm(HIDDEN) for _ in range(2))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Take and return (b, s, hidden)."""
        x = self.norms[0](dropped(self.attention(x, mask)) + x)
        y = self.second(F.gelu(self.first(x)))
        result: Tensor = self.norms[1](dropped(y) + x)
        return result


class Bert(nn.Module):
    """BERT-large with what its task puts on top of it, and the loss.

    ``task`` is "pre-training": all words are guessed, and whether a sentence
    follows another; or "question answering": where an answer begins and ends.
    """

    def __init__(self, task: str) -> None:
        super().__init__()
        self.task = task
        self.words = nn.Embedding(WORDS, HIDDEN)
        self.places = nn.Embedding(POSITIONS, HIDDEN)
        self.kinds = nn.Embedding(2, HIDDEN)
        self.norms = nn.ModuleList(nn.LayerNorm(HIDDEN) for _ in range(2))
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.pooler = nn.Linear(HIDDEN, HIDDEN)
        self.transform = nn.Linear(HIDDEN, HIDDEN)
        self.bias = nn.Parameter(torch.zeros(WORDS))
        self.two = nn.Linear(HIDDEN, 2)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the loss for words (b, s)."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.words(tokens) + self.places(places) + self.kinds(tokens)
        x = dropped(self.norms[0](x))
        mask = x.new_zeros(len(tokens), 1, 1, tokens.shape[1])
        for layer in self.layers:
            x = layer(x, mask)
        if self.task == "pre-training":
            return self._guessed(x, tokens)
        ends = self.two(x).unbind(2)  # two of (b, s)
        first, last = (F.cross_entropy(end, tokens[:, 0]) for end in ends)
        return (first + last) / 2

    def _guessed(self, x: Tensor, tokens: Tensor) -> Tensor:
        y = self.norms[1](F.gelu(self.transform(x)))
        scores = y @ self.words.weight.T + self.bias
        follows = self.two(self.pooler(x[:, 0]).tanh())
        return F.cross_entropy(
            scores.flatten(0, 1), tokens.flatten()
        ) + F.cross_entropy(follows, tokens[:, 0])


class Optimizer:
    """Adam on weights in float32, of which the network may have copies.

    ``fused`` is whether one kernel takes all weights. If not, each weight has
    its own kernels, one after another.
    """

    def __init__(self, net: nn.Module, fused: bool) -> None:
        self.used: list[Tensor] = [
            p for p in net.parameters() if p.grad is not None
        ]
        self.mixed = self.used[0].dtype == torch.float16
        self.weights = self.used
        if self.mixed:
            self.weights = [p.detach().float() for p in self.used]
        self.adam = torch.optim.Adam(self.weights, fused=fused, foreach=False)

    def step(self) -> None:
        """Take a step."""
        if self.mixed:
            for weight, copy in zip(self.weights, self.used, strict=True):
                assert copy.grad is not None
                weight.grad = copy.grad.float()
        nn.utils.clip_grad_norm_(self.weights, 1.0)
        self.adam.step()
        if self.mixed:
            with torch.no_grad():
                torch._foreach_copy_(self.used, self.weights)


def sequences_per_second(
    task: str,
    rows: int,
    length: int,
    accumulated: int,
    precision: str,
    fused: bool,
    **machine: Any,
) -> float:
    """Return the simulated sequences per second of training BERT-large.

    Args:
        task: "pre-training" or "question answering".
        rows: How many sequences go through the network together.
        length: How many words a sequence has.
        accumulated: How many batches of so many rows are added to the
            gradients before a step of the optimizer.
        precision: "FP32", "TF32" (products are rounded to it) or "mixed".
        fused: Whether Adam is one kernel.
        **machine: What :func:`dpkit.sim.machine` changes.

    Example:
        A V100 trained 164 a second:

        >>> from recorders.trust.bert import sequences_per_second
        >>> case = "pre-training", 16, 128, 4096, "mixed", True
        >>> 100 < sequences_per_second(*case, accelerator="v100") < 300
        True
    """
    with _simulated(precision, machine) as device:
        with torch.device("meta"):  # numbers that are drawn take seconds
            bert = Bert(task)
        net = _on(bert, precision, device)
        tokens = torch.zeros(rows, length, dtype=torch.long, device=device)
        net(tokens).backward()
        optimizer = Optimizer(net, fused)
        optimizer.step()
        if accumulated == 1:
            net.zero_grad()
        with Timer([device]) as batch:
            net(tokens).backward()
        with Timer([device]) as step:
            optimizer.step()
    seconds = accumulated * batch.seconds + step.seconds
    return accumulated * rows / seconds


def layer_sequences_per_second(
    rows: int, length: int, backward: bool, **machine: Any
) -> float:
    """Return the sequences per second of one layer, in float16.

    Several steps follow each other, and nobody waits between them.

    Args:
        rows: The sequences of a batch.
        length: The tokens of a sequence.
        backward: Whether gradients are computed, too.
        **machine: What :func:`dpkit.sim.machine` changes, by name.

    Example:
        >>> from recorders.trust.bert import layer_sequences_per_second
        >>> case = {"rows": 128, "length": 128, "accelerator": "v100"}
        >>> both = layer_sequences_per_second(**case, backward=True)
        >>> forward = layer_sequences_per_second(**case, backward=False)
        >>> 2 < forward / both < 4
        True
    """
    with _simulated("mixed", machine) as device:
        with torch.device("meta"):
            bare = Layer()
        layer = _on(bare, "mixed", device)
        x = torch.empty(
            rows, length, HIDDEN, dtype=torch.float16, device=device
        )

        def run() -> None:
            y = layer(x)
            if backward:
                y.sum().backward()

        run()
        with Timer([device]) as timer:
            for _ in range(REPEATED):
                run()
    return REPEATED * rows / timer.seconds


def _on(net: nn.Module, precision: str, device: torch.device) -> nn.Module:
    dtype = torch.float16 if precision == "mixed" else torch.float32
    return net.to(dtype).to_empty(device=device)


@contextmanager
def _simulated(
    precision: str, machine: dict[str, Any]
) -> Iterator[torch.device]:
    """Simulate a device whose products are rounded to TF32, or not."""
    products: Any = torch.backends.cuda.matmul
    before = products.fp32_precision
    products.fp32_precision = "tf32" if precision == "TF32" else "ieee"
    try:
        with sim.machine(num_devices=1, backing="meta", **machine):
            (device,) = devices(1, kind="sim")
            yield device
    finally:
        products.fp32_precision = before
