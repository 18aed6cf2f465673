"""What each rank runs, and the same steps on one device."""

import logging
import math
from collections.abc import Iterable
from os import PathLike
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from dpbook.mesh.layouts import Layout
from dpbook.mesh.model import Llama, Sizes, loss_of
from dpbook.mesh.training import Trainer, whole_tensor
from dpkit import devices

# DTensor warns where it sends along two dimensions, one after the other.
logging.getLogger("torch.distributed.tensor._redistribute").setLevel("ERROR")
SMALL = Sizes(blocks=2, length=16)
NUM_ROWS = 16
LEARNING_RATE = 1e-3


class Learned(NamedTuple):
    """What some steps have left on a rank, or on one device."""

    losses: list[float]  #: by step; none on a rank without the last stage
    parameters: dict[str, Tensor]  #: whole, by name; those of the rank's stage


def text(sizes: Sizes, num_rows: int = NUM_ROWS) -> tuple[Tensor, Tensor]:
    """Return tokens (b, s) and those that come next, equal on all ranks."""
    generator = torch.Generator().manual_seed(1)
    shape = num_rows, sizes.length + 1
    tokens = torch.randint(sizes.vocabulary, shape, generator=generator)
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


def new_model(sizes: Sizes) -> Llama:
    """Return the whole model on the CPU, in float64, equal on all ranks."""
    torch.manual_seed(0)
    return Llama(sizes).double()


def learn_on_one_device(
    sizes: Sizes = SMALL, steps: int = 3, clip: float = 0.0
) -> Learned:
    """Take some steps without any engine."""
    (device,) = devices(1)
    model = new_model(sizes).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), LEARNING_RATE)
    tokens, targets = (x.to(device) for x in text(sizes))
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = loss_of(model(tokens), targets)
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        losses.append(loss.item())
    parameters = {n: p.detach().cpu() for n, p in model.named_parameters()}
    return Learned(losses, parameters)


def learn(
    layout: Layout, sizes: Sizes = SMALL, steps: int = 3, clip: float = 0.0
) -> Learned:
    """Take the same steps on a layout; every rank calls it."""
    whole = new_model(sizes).state_dict()
    trainer = Trainer(sizes, layout, whole, clip=clip, lr=LEARNING_RATE)
    return continue_learning(trainer, sizes, steps)


def continue_learning(trainer: Trainer, sizes: Sizes, steps: int) -> Learned:
    """Take some steps on a layout; return what they leave on this rank."""
    tokens, targets = text(sizes)
    losses = [trainer.step(tokens, targets) for _ in range(steps)]
    parameters = {
        name: whole_tensor(p).cpu()
        for name, p in trainer.model.named_parameters()
    }
    return Learned([x.item() for x in losses if x is not None], parameters)


class Norms(NamedTuple):
    """The norm of gradients, on a rank."""

    own: float  #: of the rank's own shards
    whole: float  #: of the whole model, as each rank finds it


def norms_of_gradients(layout: Layout, sizes: Sizes = SMALL) -> Norms:
    """Return the norm of the first gradients; every rank calls it."""
    trainer = Trainer(sizes, layout, new_model(sizes).state_dict(), clip=1e9)
    trainer.compute_gradients(*text(sizes))
    own = [
        p.grad.to_local() if isinstance(p.grad, DTensor) else p.grad
        for p in trainer.model.parameters()
        if p.grad is not None
    ]
    whole = trainer.clip_gradients()
    return Norms(norm_of(own), float(whole))


def norm_of(tensors: Iterable[Tensor]) -> float:
    """Return the norm of all tensors together."""
    squares = [float(x.double().square().sum()) for x in tensors]
    return math.sqrt(math.fsum(squares))


def whole_norm(sizes: Sizes = SMALL) -> float:
    """Return the norm of the first gradients on one device."""
    (device,) = devices(1)
    model = new_model(sizes).to(device)
    tokens, targets = (x.to(device) for x in text(sizes))
    loss_of(model(tokens), targets).backward()
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    return norm_of(grads)


def save_after_a_step(layout: Layout, folder: str | PathLike[str]) -> Learned:
    """Take a step, save, and take two more; return what these leave."""
    trainer = Trainer(SMALL, layout, new_model(SMALL).state_dict())
    continue_learning(trainer, SMALL, steps=1)
    trainer.save(folder)
    return continue_learning(trainer, SMALL, steps=2)


def resume(layout: Layout, folder: str | PathLike[str]) -> Learned:
    """Load into a model of other values, and take two steps."""
    whole = {n: x + 1 for n, x in new_model(SMALL).state_dict().items()}
    trainer = Trainer(SMALL, layout, whole)
    trainer.load(folder)
    return continue_learning(trainer, SMALL, steps=2)


def mean_losses(ranks: list[Learned]) -> list[float]:
    """Return the loss of each step, over the ranks that know one."""
    known = [rank.losses for rank in ranks if rank.losses]
    return [sum(step) / len(known) for step in zip(*known, strict=True)]


def largest_difference(ranks: list[Learned], one: Learned) -> float:
    """Return how far ranks are from one device, in losses and parameters.

    Differences are relative to the loss, and to the largest value of each
    parameter. Together the ranks have all parameters.

    Raises:
        ValueError: they have not; the message names what is missing.
    """
    known = {name for rank in ranks for name in rank.parameters}
    if known != one.parameters.keys():
        missing = sorted(one.parameters.keys() ^ known)
        raise ValueError(f"no rank has these parameters ({missing})")
    found = [
        abs(a - b) / b
        for a, b in zip(mean_losses(ranks), one.losses, strict=True)
    ]
    for rank in ranks:
        for name, p in rank.parameters.items():
            expected = one.parameters[name]
            difference = (p - expected).abs().max() / expected.abs().max()
            found.append(float(difference))
    return max(found)
