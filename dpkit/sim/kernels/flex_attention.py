"""FlexAttention: eagerly by products and a softmax, compiled by one kernel.

PyTorch's ``flex_attention`` checks its arguments in Python and calls one
operator, which is computed here for simulated tensors::

    called      on the clock                          in memory
    eagerly     products, a softmax, an operation     all scores, b · h · s²
                each; backward computes them again
    compiled    one kernel forward, one backward,     the outputs alone
                for the blocks that the mask keeps

Both compute the same values: ``math_attention``, which PyTorch has for this.
Backward computes it a second time, so that learned tensors that ``score_mod``
reads get their gradients, too. A kernel with such tensors is not priced; it is
charged as if it were called eagerly.

Source:
    He and others, "FlexAttention: The Flexibility of PyTorch with the
    Performance of FlashAttention", 2024: on an A100 it reaches 90 % of
    FlashAttention-2's rate forward and 85 % backward.
"""

import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import log, prod
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from dpkit.sim.changes.change import wrapped
from dpkit.sim.clock.clock import Clock
from dpkit.sim.compiled import runs_compiled
from dpkit.sim.devices.configuration import simulation
from dpkit.sim.hardware.costs import operation_seconds
from dpkit.sim.kernels.flex_blocks import (
    Blocks,
    ScoresPart,
    blocks_of,
    of_piece,
    parts_of_scores,
)
from dpkit.sim.operators.precision import compute_dtype
from dpkit.sim.places import here
from dpkit.sim.tensors.behaviour import Behaviour, plain
from dpkit.sim.tensors.charge import await_arrivals
from dpkit.sim.tracing import mark_results, tracing

# The operator's module; torch gives its name to the operator as well.
OPERATOR = sys.modules["torch._higher_order_ops.flex_attention"]
# The share of FlashAttention-2's rate that the kernel reaches.
_SHARES = {"flash": 0.9, "flash backward": 0.85}

Three = tuple[Tensor, Tensor, Tensor]


class FlexCall(NamedTuple):
    """A call of the operator without its tensors."""

    score_mod: Callable[..., Tensor]  # changes a score: (score, b, h, q, k)
    block_mask: tuple[Any, ...]  # which blocks are computed, and mask_mod
    scale: float
    options: dict[str, Any]

    def of_piece(self, piece: ScoresPart, blocks: Blocks) -> "FlexCall":
        """Return the call for a piece of the scores."""
        functions = self.score_mod, self.block_mask[-1]
        score_mod, mask_mod = of_piece(piece, blocks, *functions)
        mask = *self.block_mask[:-1], mask_mod
        return self._replace(score_mod=score_mod, block_mask=mask)


def flex_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: Callable[..., Tensor],
    block_mask: tuple[Any, ...],
    scale: float,
    options: dict[str, Any],
    *_: Any,
) -> Three:
    """Stand in for the operator ``flex_attention`` on simulated tensors.

    Args:
        query: Of shape (b, heads, queries, width).
        key: Of shape (b or 1, heads of keys, keys, width).
        value: Of shape (b or 1, heads of keys, keys, width of the output).
        score_mod: Given a score and its place, return another score.
        block_mask: What ``BlockMask.as_tuple`` returns.
        scale: The factor of the scores.
        options: PyTorch's settings of its kernel, which change no value.

    Returns:
        The output, of shape (b, heads, queries, width of the output), and of
        the scores of each query the ``logsumexp`` and the largest, both
        divided by log 2, as PyTorch's kernels return them.
    """
    _call_eagerly(simulated=False)
    given = [query, key, value]
    if torch.is_autocast_enabled("sim"):
        dtype = torch.get_autocast_dtype("sim")
        given = [x.to(dtype) for x in given]
    call = FlexCall(score_mod, block_mask, scale, options)
    with torch.autocast("sim", enabled=False):
        if runs_compiled() and not _learns(given, call):
            return cast(Three, _OneKernel.apply(*given, call))
        if not torch.is_grad_enabled():
            return _attend(given, call)
        return checkpoint(
            _attend,
            given,
            call,
            use_reentrant=False,
            preserve_rng_state=False,
        )


def _attend(given: Sequence[Tensor], call: FlexCall) -> Three:
    """Compute attention by products and a softmax, with all scores."""
    out, sums, largest = OPERATOR.math_attention(*given, *call)
    if call.options.get("BACKEND") == "FLASH":  # which uses the natural log
        sums, largest = log(2) * sums, log(2) * largest
    return OPERATOR._permute_strides(out, given[0].stride()), sums, largest


def _learns(given: Sequence[Tensor], call: FlexCall) -> bool:
    """Return whether ``score_mod`` reads a tensor that gets a gradient."""
    if not torch.is_grad_enabled():
        return False
    one_score = [x[:1, :1, :1].detach() for x in given]
    with _at_no_cost():
        return _attend(one_score, call)[0].requires_grad


# -- as one kernel


class _OneKernel(torch.autograd.Function):
    """Attention that is charged as one kernel forward and one backward."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, call: FlexCall
    ) -> Three:
        given = query, key, value
        with _at_no_cost():
            blocks = blocks_of(call.block_mask, query, key)
            results = _blank(given)
            for piece in parts_of_scores(blocks, query, key):
                part = _attend(_of(given, piece), call.of_piece(piece, blocks))
                for whole, found in zip(results, part):
                    whole[_rows(whole, piece)] = found
        phase = "forward" if any(ctx.needs_input_grad) else ""
        _charge(blocks, given, results, phase)
        ctx.call = call
        ctx.blocks = blocks
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*given, *results[:2])
        ctx.mark_non_differentiable(results[2])
        return results

    @staticmethod
    def backward(
        ctx: Any, of_out: Tensor | None, of_sums: Tensor | None, _: None
    ) -> tuple[Tensor | None, ...]:
        *given, out, sums = ctx.saved_tensors
        of_results = {0: of_out, 1: of_sums}
        known = {i: x for i, x in of_results.items() if x is not None}
        with _at_no_cost():
            gradients = [torch.zeros_like(x) for x in given]
            for piece in parts_of_scores(ctx.blocks, *given[:2]):
                parts = _gradients(
                    _of(given, piece),
                    ctx.call.of_piece(piece, ctx.blocks),
                    {i: x[_rows(x, piece)] for i, x in known.items()},
                )
                for whole, found in zip(_of(gradients, piece), parts):
                    whole += found
        read = *given, out, sums, *known.values()
        _charge(ctx.blocks, read, gradients, "backward")
        return *gradients, None


def _blank(given: Sequence[Tensor]) -> Three:
    """Return outputs, sums and largest scores without values."""
    query, _, value = given
    shape = *query.shape[:-1], value.shape[-1]
    widest = torch.promote_types(query.dtype, torch.float32)
    out = OPERATOR._permute_strides(query.new_empty(shape), query.stride())
    rows = query.new_empty(shape[:-1], dtype=widest)
    return out, rows, torch.empty_like(rows)


def _of(given: Sequence[Tensor], piece: ScoresPart) -> list[Tensor]:
    """Return the queries, keys and values of a piece."""
    query, *others = given
    keys = piece.keys
    return [
        query[_rows(query, piece)],
        *(x[_rows(x, piece, keys)] for x in others),
    ]


def _rows(
    x: Tensor, piece: ScoresPart, rows: slice | None = None
) -> tuple[slice, ...]:
    """Return where in a tensor the rows of a piece are: by default queries.

    A tensor of one example holds what is for all.
    """
    example = slice(piece.example, piece.example + 1)
    if len(x) == 1:
        example = slice(None)
    return example, slice(None), rows or piece.queries


def _gradients(
    given: list[Tensor], call: FlexCall, of_results: dict[int, Tensor]
) -> tuple[Tensor, ...]:
    """Return the gradients of queries, keys and values.

    Args:
        given: Queries, keys and values.
        call: The rest of the call.
        of_results: The gradients of those results that have one, by place.
    """
    leaves = [x.detach().requires_grad_() for x in given]
    with torch.enable_grad():
        results = _attend(leaves, call)
        return torch.autograd.grad(
            [results[i] for i in of_results],
            leaves,
            list(of_results.values()),
            materialize_grads=True,
        )


@contextmanager
def _at_no_cost() -> Iterator[None]:
    """Run a block that takes no time and no memory of the devices."""
    clock = simulation.clock
    races = simulation.races
    simulation.clock = Clock(clock.cluster)
    simulation.races = None
    try:
        with simulation.memory.paused():
            yield
    finally:
        simulation.clock = clock
        simulation.races = races


def _charge(
    blocks: Blocks,
    reads: Sequence[Tensor],
    results: Sequence[Tensor],
    phase: str,
) -> None:
    """Charge for one kernel, and count the memory of its results."""
    # Each product adds up the size of q and k, or that of v, for a score:
    #
    #     forward     S, O                         size of q + v
    #     backward    S again, dP, dv, dq, dk    3 · q + 2 · v
    query, key, value = reads[:3]
    width = query.shape[-1]
    name = "flex_attention"
    kind = "flash"
    terms = width + value.shape[-1]
    if phase == "backward":
        name = "flex_attention_backward"
        kind = "flash backward"
        terms = 3 * width + 2 * value.shape[-1]
    flops = 2 * terms * _num_scores(blocks, query, key)
    num_bytes = sum(x.nbytes for x in (*reads, *results))
    device = query.device.index
    for x in results:
        simulation.memory.hold(plain(x), device)
    clock = simulation.clock
    seconds = operation_seconds(
        clock.cluster.accelerator,
        flops=flops / _SHARES[kind],
        num_bytes=num_bytes,
        dtype=compute_dtype("bmm", query),
        kind=kind,
    )
    with clock.lock:
        if simulation.races is not None:
            simulation.races.used(
                name, device, reads=reads, writes=results, made=results
            )
        if clock.hosts.in_backward:
            await_arrivals(reads, device)
        clock.compute(
            device,
            name,
            seconds=seconds,
            num_bytes=num_bytes,
            flops=flops,
            launches=1,
            phase=phase,
        )
    if tracing():
        mark_results(list(results))


def _num_scores(blocks: Blocks, query: Tensor, key: Tensor) -> int:
    """Return how many scores a kernel computes: those of whole blocks."""
    num_heads = prod(query.shape[:2])
    known = blocks.num_scores(num_heads)
    if known is not None:
        return known
    warnings.warn_explicit(
        "the block mask has no values, so that flex_attention is charged "
        f"for all blocks (scores: {query.shape[-2]} × {key.shape[-2]})",
        UserWarning,
        *here().program,
    )
    whole = prod(blocks.table.shape[2:]) * blocks.queries * blocks.keys
    return num_heads * whole


# -- how a call comes here


_MODULE = "torch.nn.attention.flex_attention"


def modules_that_hold_it() -> list[Any]:
    """Return the modules that have what ``flex_attention`` calls first.

    Its own is imported late, and takes that from the other.
    """
    names = "torch.nn.attention._utils", _MODULE
    return [sys.modules[name] for name in names if name in sys.modules]


def letting_through(validate: Callable[..., None]) -> Callable[..., None]:
    """Return what ``flex_attention`` calls first, for simulated devices, too.

    PyTorch's function refuses devices that it does not know, and compiles what
    it calls. Now that it is called, its module is there and can be changed.
    """

    def check(*args: Any, **options: Any) -> None:
        validate(*args, **options)
        module = sys.modules.get(_MODULE)
        if module is not None and not _changes:
            _changes.extend(
                wrapped(module, name, change).apply()
                for name, change in _OF_MODULE.items()
            )

    return check


def change_back() -> None:
    """Take back what was changed when ``flex_attention`` was called."""
    while _changes:
        _changes.pop()()


def _knowing_simulated(validate: Callable[..., None]) -> Callable[..., None]:
    """Return what refuses devices, which lets simulated ones through."""

    def check(query: Tensor, *others: Tensor) -> None:
        if not isinstance(query, Behaviour):
            validate(query, *others)

    return check


def _eager_if_simulated(last: Callable[..., Any]) -> Callable[..., Any]:
    """Return what is called last before the operator, and may raise.

    From here on nothing does, so that what is switched is switched back.
    """

    def run(query: Tensor, *args: Any, **options: Any) -> Any:
        found = last(query, *args, **options)
        _call_eagerly(isinstance(query, Behaviour))
        return found

    return run


_OF_MODULE = {
    "_validate_device": _knowing_simulated,
    "_apply_kernel_options": _eager_if_simulated,
}
_changes: list[Callable[[], object]] = []  # what takes them back
_EAGER = "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG"
_usual: list[Any] = []  # its value, while it is switched


def _call_eagerly(simulated: bool) -> None:
    """Have PyTorch's function call its operator without compiling it.

    Args:
        simulated: Whether a simulated tensor is attended to; if not, it calls
            the operator as it usually does.
    """
    module = sys.modules.get(_MODULE)
    if simulated and not _usual:
        _usual.append(getattr(module, _EAGER))
        setattr(module, _EAGER, True)
    elif not simulated and _usual:
        setattr(module, _EAGER, _usual.pop())
