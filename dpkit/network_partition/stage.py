"""One stage of a network: its actions, and what it keeps between them.

The graph of autograd ends at the borders of a stage. What comes in is a leaf;
its gradient goes back to the stage before::

    before ── x ──▶ [ layer ─▶ layer ─▶ layer ] ── y ──▶ next
    before ◀─ dx ── [         backward        ] ◀─ dy ── next

x and y are a tensor each. Where a skip passes the layers in between, they are
tuples of tensors. dx and dy are lists: a gradient or None for each tensor.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only

from dpkit.batch_norm import recomputing
from dpkit.machine import seed_device

Passed = Tensor | tuple[Tensor, ...]  # from stage to stage
Gradients = list[Tensor | None]
Layer = Callable[[Any], Any]
T = TypeVar("T")


@dataclass
class Piece:
    """Layers of a stage, and what is kept of a micro-batch in them."""

    layers: Sequence[Layer]
    xs: list[Tensor]  # leaves, which came in
    ys: list[Tensor]  # what came out
    dys: Gradients = field(default_factory=list)  # once they are known

    @property
    def params(self) -> list[nn.Parameter]:
        """The parameters of the layers that require a gradient."""
        return _trained(self.layers)

    def roots(self) -> tuple[list[Tensor], list[Tensor]]:
        """Return the outputs where backward begins, and their gradients."""
        # Outputs a b c: b holds integers, and nothing depends on c: a alone.
        pairs = [
            (y, dy)
            for y, dy in zip(self.ys, self.dys, strict=True)
            if y.requires_grad and dy is not None
        ]
        return [y for y, _ in pairs], [dy for _, dy in pairs]


@dataclass
class Stage:
    """The layers of one stage, and the micro-batches that are in flight.

    If ``split``, gradients of inputs and of weights are made apart: the graph
    ends before every layer that has weights, too. If ``recompute``, only the
    input is kept, and forward is run again where backward needs it.
    """

    module: nn.Module  # a sequence; any other module counts as one layer
    device: torch.device
    first_layer: int  # its number in the network
    split: bool
    recompute: bool
    seed: int = 0
    most_kept: int = 0  # micro-batches that were in flight at once
    _kept: dict[int, Callable[[], list[Piece]]] = field(default_factory=dict)
    _put_off: dict[int, list[Piece]] = field(default_factory=dict)

    def forward(self, m: int, x: Passed, end: Layer | None = None) -> Any:
        """Run micro-batch m, and ``end``; return what comes out, detached."""
        with torch.set_grad_enabled(not self.recompute):
            pieces, y = self._run(m, x, end)
        again = partial(self._run_again, m, x, end)
        self._kept[m] = again if self.recompute else lambda: pieces
        kept = len(self._kept) + len(self._put_off)
        self.most_kept = max(self.most_kept, kept)
        return each(Tensor, Tensor.detach, y)

    def backward(self, m: int, dys: Gradients) -> Gradients:
        """Make all gradients, from the outputs'; return the inputs'."""
        (piece,) = self._kept.pop(m)()
        piece.dys = dys
        torch.autograd.backward(*piece.roots())
        return [x.grad for x in piece.xs]

    def backward_inputs(self, m: int, dys: Gradients) -> Gradients:
        """Make the gradients of inputs alone; see :meth:`backward`."""
        self._put_off[m] = []
        # From the last piece to the first: dx of one is dy of the one before.
        for piece in reversed(self._kept.pop(m)()):
            piece.dys = dys
            if piece.params:
                self._put_off[m].append(piece)
            dys = _input_gradients(piece)
        return dys

    def backward_weights(self, m: int) -> None:
        """Make the gradients of the weights, which were put off."""
        for piece in self._put_off.pop(m):
            torch.autograd.backward(*piece.roots(), inputs=piece.params)

    def forget(self) -> None:
        """Keep nothing, as after a step that an exception ended."""
        self._kept.clear()
        self._put_off.clear()

    def _run_again(self, *given: Any) -> list[Piece]:
        """Run all layers again; batch norms do not count the rows again."""
        with recomputing():
            return self._run(*given)[0]

    def _run(
        self, m: int, y: Any, end: Layer | None
    ) -> tuple[list[Piece], Any]:
        """Run all layers, in one piece or, if backward is split, in many."""
        layers = layers_of(self.module) + ([end] if end else [])
        groups = _apart(layers) if self.split else [layers]
        pieces: list[Piece] = []
        number = self.first_layer
        for group in groups:
            y = each(Tensor, partial(_leaf, has_gradient=number > 0), y)
            xs = [y] if isinstance(y, Tensor) else tree_leaves(y)
            for layer in group:
                # Random numbers of a layer depend neither on the stage that
                # it is in nor on the schedule.
                seed_device(self.device, hash((self.seed, number, m)))
                y = layer(y)
                number += 1
            ys = list(y) if isinstance(y, tuple) else [y]
            _check_passed(ys, number - 1)
            pieces.append(Piece(group, xs, ys))
        return pieces, y


def each(kind: type[T], act: Callable[[T], Any], x: Any) -> Any:
    """Apply a function to all of a kind: one, or those in a tuple or list.

    It does what PyTorch's ``tree_map_only`` does, which takes 20 µs for one.
    """
    if isinstance(x, kind):
        return act(x)
    if isinstance(x, list):
        return [each(kind, act, y) for y in x]
    return x if x is None else tree_map_only(kind, act, x)


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


def _check_passed(ys: Sequence[object], last_layer: int) -> None:
    """Raise TypeError unless tensors come out of a stage or a piece of it."""
    for y in ys:
        if not isinstance(y, Tensor):
            raise TypeError(
                "a stage or layer gives something else than a tensor or a "
                f"tuple of tensors (last layer: {last_layer}, type: "
                f"{type(y).__name__})"
            )


def _input_gradients(piece: Piece) -> Gradients:
    ys, dys = piece.roots()
    xs = [x for x in piece.xs if x.requires_grad]
    if not (xs and ys):
        return [None for _ in piece.xs]
    keep = bool(piece.params)  # the graph, for the gradients of the weights
    dxs = torch.autograd.grad(
        ys, xs, dys, retain_graph=keep, allow_unused=True
    )
    found = dict(zip(map(id, xs), dxs))
    return [found.get(id(x)) for x in piece.xs]


def _trained(group: Sequence[Layer]) -> list[nn.Parameter]:
    modules = [layer for layer in group if isinstance(layer, nn.Module)]
    return [p for m in modules for p in m.parameters() if p.requires_grad]
