"""One stage of a network: its actions, and what it keeps between them.

The graph of autograd ends at the borders of a stage. What comes in is a leaf;
its gradient goes back to the stage before::

    before ── x ──▶ [ layer ─▶ layer ─▶ layer ] ── y ──▶ next
    before ◀─ dx ── [         backward        ] ◀─ dy ── next
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from dpkit.batch_norm import recomputing
from dpkit.machine import seed_device

Layer = Callable[[Tensor], Tensor]


@dataclass
class Piece:
    """Layers of a stage, and what is kept of a micro-batch in them.

    ``x``, a leaf, came in and ``y`` came out. ``dy`` is the gradient of y,
    once it is known. ``params`` are the trained parameters of the layers.
    """

    params: list[nn.Parameter]
    x: Tensor
    y: Tensor
    dy: Tensor | None = None


@dataclass
class Stage:
    """The layers of one stage, and the micro-batches that are in flight.

    ``module`` is an ``nn.Sequential``; any other module counts as one layer.
    ``first_layer`` is the number of its first layer in the network. If
    ``split``, gradients of inputs and of weights are made apart: the graph
    ends before every layer that has weights, too. If ``recompute``, only the
    input is kept, and forward is run again where backward needs it.
    ``most_kept`` is the most micro-batches that were in flight at once.
    """

    module: nn.Module
    device: torch.device
    first_layer: int
    split: bool
    recompute: bool
    seed: int = 0
    most_kept: int = 0
    _kept: dict[int, Callable[[], list[Piece]]] = field(default_factory=dict)
    _put_off: dict[int, list[Piece]] = field(default_factory=dict)

    def forward(self, m: int, x: Tensor, end: Layer | None = None) -> Tensor:
        """Run micro-batch m, and ``end``; return what comes out, detached."""
        with torch.set_grad_enabled(not self.recompute):
            pieces = self._run(m, x, end)
        again = partial(self._run_again, m, x, end)
        self._kept[m] = again if self.recompute else lambda: pieces
        kept = len(self._kept) + len(self._put_off)
        self.most_kept = max(self.most_kept, kept)
        return pieces[-1].y.detach()

    def backward(self, m: int, dy: Tensor | None) -> Tensor | None:
        """Make all gradients, from that of the output; return the input's."""
        (piece,) = self._kept.pop(m)()
        if dy is not None and piece.y.requires_grad:
            torch.autograd.backward(piece.y, dy)
        return piece.x.grad

    def backward_inputs(self, m: int, dy: Tensor | None) -> Tensor | None:
        """Make the gradient of the input alone; see :meth:`backward`."""
        self._put_off[m] = []
        # From the last piece to the first: dx of one is dy of the one before.
        for piece in reversed(self._kept.pop(m)()):
            if dy is None or not piece.y.requires_grad:
                return None
            piece.dy = dy
            if piece.params:
                self._put_off[m].append(piece)
            dy = _input_gradient(piece)
        return dy

    def backward_weights(self, m: int) -> None:
        """Make the gradients of the weights, which were put off."""
        for piece in self._put_off.pop(m):
            torch.autograd.backward(piece.y, piece.dy, inputs=piece.params)

    def forget(self) -> None:
        """Keep nothing, as after a step that an exception ended."""
        self._kept.clear()
        self._put_off.clear()

    def _run_again(self, *given: Any) -> list[Piece]:
        """Run all layers again; batch norms do not count the rows again."""
        with recomputing():
            return self._run(*given)

    def _run(self, m: int, x: Tensor, end: Layer | None) -> list[Piece]:
        """Run all layers, in one piece or, if backward is split, in many."""
        layers = layers_of(self.module) + ([end] if end else [])
        groups = _apart(layers) if self.split else [layers]
        pieces: list[Piece] = []
        number = self.first_layer
        for group in groups:
            x = y = _leaf(x, number > 0)
            for layer in group:
                # Random numbers of a layer depend neither on the stage that
                # it is in nor on the schedule.
                seed_device(self.device, hash((self.seed, number, m)))
                y = layer(y)
                number += 1
            if not isinstance(y, Tensor):
                raise TypeError(
                    "a stage or layer gives something else than a tensor "
                    f"(last layer: {number - 1}, type: {type(y).__name__})"
                )
            pieces.append(Piece(_trained(group), x, y))
            x = y
        return pieces


def layers_of(module: nn.Module) -> list[Layer]:
    """Return the layers of a plain ``nn.Sequential``; another is one layer."""
    plain = type(module).forward is nn.Sequential.forward
    hooked = module._forward_hooks or module._forward_pre_hooks
    if plain and isinstance(module, nn.Sequential) and not hooked:
        return list(module)
    return [module]


def _apart(layers: Sequence[Layer]) -> list[list[Layer]]:
    """Begin a group with every layer that has weights."""
    # Linear ReLU Linear Dropout: [Linear ReLU] [Linear Dropout]
    groups: list[list[Layer]] = [[]]
    for layer in layers:
        if groups[-1] and _trained([layer]):
            groups.append([])
        groups[-1].append(layer)
    return groups


def _leaf(x: Tensor, has_gradient: bool) -> Tensor:
    differentiable = x.is_floating_point() or x.is_complex()
    return x.detach().requires_grad_(has_gradient and differentiable)


def _input_gradient(piece: Piece) -> Tensor | None:
    if not piece.x.requires_grad:
        return None
    keep = bool(piece.params)  # the graph, for the gradients of the weights
    (dx,) = torch.autograd.grad(
        piece.y, piece.x, piece.dy, retain_graph=keep, allow_unused=True
    )
    return dx


def _trained(group: Sequence[Layer]) -> list[nn.Parameter]:
    modules = [layer for layer in group if isinstance(layer, nn.Module)]
    return [p for m in modules for p in m.parameters() if p.requires_grad]
