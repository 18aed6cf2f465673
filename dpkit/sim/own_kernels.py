"""Operations that are computed otherwise than by the CPU's own kernel.

- Attention: on a device that PyTorch does not know it would compose it of
  products and a softmax, which rounds in another order. Here it is the kernel
  that PyTorch chooses on the CPU.
- The cells of recurrent layers: PyTorch calls a fused cell on every device but
  the CPU, and the CPU has none. The values equal the CPU's up to rounding.
- What CUDA takes and the CPU does not: ``ctc_loss`` takes lengths from the CPU
  for what lies on a GPU, and ``histc`` takes integers there.
- Shapes where there are no numbers: PyTorch works out the shape of a sum in
  Python, which takes longer than all that a simulated device does for it. A
  step of training asks for the same shapes as the step before.
"""

from collections.abc import Hashable
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend

from dpkit.sim.behaviour import plain
from dpkit.sim.configuration import simulation
from dpkit.sim.memory import tensors_in
from dpkit.sim.operations import OpCall, alias_kind, aten

INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
MOST = 10_000  # shapes that are remembered

_known: dict[Hashable, tuple[Any]] = {}


def run_plain(call: OpCall) -> Any:
    """Run an operation on plain tensors."""
    func, args, kwargs = call
    try:
        if simulation.backing.type == "meta":
            return _run_without_numbers(call)
        if torch.is_inference_mode_enabled():
            # Backings are ordinary tensors in any mode.
            with torch.inference_mode(False), torch.no_grad():
                return func(*args, **kwargs)
        return func(*args, **kwargs)
    except NotImplementedError as error:
        return _run_as_on_cuda(call, error)
    except RuntimeError as error:
        if "DefaultCPUAllocator" in str(error):
            raise torch.OutOfMemoryError(str(error)) from None
        raise


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Stand in for ``torch.nn.functional.scaled_dot_product_attention``."""
    mask = attn_mask
    if mask is not None and mask.dtype == torch.bool:
        nothing = torch.zeros_like(mask, dtype=query.dtype)
        mask = nothing.masked_fill_(mask.logical_not(), -torch.inf)
    choice = aten._fused_sdp_choice(
        _stand_in(query),
        _stand_in(key),
        _stand_in(value),
        None if mask is None else _stand_in(mask),
        dropout_p,
        is_causal,
        scale=scale,
        enable_gqa=enable_gqa,
    )
    if plain(query).device.type == "cuda":  # only on CUDA
        choice = SDPBackend.MATH.value
    learnt_mask = mask is not None and mask.requires_grad
    if choice != SDPBackend.FLASH_ATTENTION.value or learnt_mask:
        composed: Tensor = aten._scaled_dot_product_attention_math(
            query, key, value, mask, dropout_p, is_causal,
            scale=scale, enable_gqa=enable_gqa,
        )[0]  # fmt: skip
        return composed
    missing = 4 - query.dim()  # the kernel wants a batch of heads
    operands = [x[(None,) * missing] for x in (query, key, value)]
    fused: Tensor = aten._scaled_dot_product_flash_attention_for_cpu(
        *operands, dropout_p, is_causal, attn_mask=mask, scale=scale
    )[0]
    return fused.flatten(0, missing) if missing else fused


def _stand_in(tensor: Tensor) -> Tensor:
    """Return a tensor on the CPU to choose a kernel by."""
    backing = plain(tensor)
    if backing.device.type == "cpu":
        return backing
    # A row of numbers, as if it were all of them: only its layout is asked.
    row = torch.empty(tensor.shape[-1:], dtype=tensor.dtype)
    return row.expand(tensor.shape)


def lstm_cell(
    input_gates: Tensor, hidden_gates: Tensor, cell: Tensor, *biases: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the next state, the next cell, and what backward would keep."""
    # Columns of the gates, h of each: input | forget | cell | output.
    from_input, from_state = _biased([input_gates, hidden_gates], biases)
    gates = from_input + from_state
    enter, forget, new, leave = gates.chunk(4, dim=1)
    next_cell = forget.sigmoid() * cell + enter.sigmoid() * new.tanh()
    return leave.sigmoid() * next_cell.tanh(), next_cell, torch.empty(0)


def gru_cell(
    input_gates: Tensor, hidden_gates: Tensor, state: Tensor, *biases: Any
) -> tuple[Tensor, Tensor]:
    """Return the next state, and what backward would keep."""
    # Columns of the gates, h of each: reset | update | new state.
    gates = _biased([input_gates, hidden_gates], biases)
    from_input, from_state = (x.chunk(3, dim=1) for x in gates)
    reset = (from_input[0] + from_state[0]).sigmoid()
    update = (from_input[1] + from_state[1]).sigmoid()
    new = (from_input[2] + reset * from_state[2]).tanh()
    return (state - new) * update + new, torch.empty(0)


def _biased(gates: list[Tensor], biases: Any) -> list[Tensor]:
    """Add to each its bias, where there is one."""
    pairs = zip_longest(gates, biases)
    return [x if bias is None else x + bias for x, bias in pairs]


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    inputs: Tensor,
    labels: Tensor,
    *more: Any,
) -> Tensor:
    """Stand in for ``ctc_loss``: the host reads the lengths from tensors."""
    lengths = inputs.tolist(), labels.tolist()
    loss: Tensor = aten.ctc_loss.IntList(log_probs, targets, *lengths, *more)
    return loss


def _run_as_on_cuda(call: OpCall, error: Exception) -> Any:
    """Run what the CPU has no kernel for; raise ``error`` if CUDA has none."""
    func, args, kwargs = call
    if func is aten.histc.default and args[0].dtype in INTEGERS:
        return _histc(*args, **kwargs)
    raise error


def _histc(x: Tensor, bins: int = 100, min: Any = 0, max: Any = 0) -> Tensor:
    """Count the integers in each of equal bins, as CUDA's kernel does."""
    # [0, 1, 1, 4, 7] from 0 to 4 in 2 bins: 0, 1, 1 | 4; 7 is outside.
    low, high = int(min), int(max)
    if low == high and x.numel():
        low, high = int(x.min()), int(x.max())
    if low == high:
        low, high = low - 1, high + 1
    if bins < 1:
        raise RuntimeError("bins must be > 0")
    if high < low:
        raise RuntimeError("max must be larger than min")
    numbers = x.flatten().long()
    inside = numbers[(numbers >= low) & (numbers <= high)]
    places = ((inside - low) * bins // (high - low)).clamp_max(bins - 1)
    return torch.bincount(places, minlength=bins).to(x.dtype)


class _NoKeyError(Exception):
    """An argument on which the result may depend in ways not told here."""


def _run_without_numbers(call: OpCall) -> Any:
    """Run an operation on tensors of torch's device ``meta``."""
    func, args, kwargs = call
    if alias_kind(func)[0] != "new":
        return func(*args, **kwargs)
    try:
        key = func, torch.get_default_dtype(), _key(args), _key(kwargs)
    except _NoKeyError:
        return func(*args, **kwargs)
    known = _known.get(key)  # at once: another thread may clear it
    if known is not None:
        return _made_like(known[0])
    out = func(*args, **kwargs)
    pattern = _made_like(out)
    if _sizes((args, pattern)) == _sizes((args, out)):  # shares no memory
        if len(_known) >= MOST:
            _known.clear()
        _known[key] = (pattern,)
    return out


def _key(value: Any) -> Any:
    """Return what of an argument a shape may depend on."""
    kind = type(value)
    if kind is Tensor and value.is_meta and not _turned(value):
        return value.shape, value.stride(), value.dtype
    if kind is list or kind is tuple:
        return kind, *[_key(item) for item in value]
    if kind is dict:
        return tuple((name, _key(item)) for name, item in value.items())
    if kind in (bool, int, float, complex):
        return kind, repr(value)  # True, 1 and 1.0 are equal
    if isinstance(value, (Tensor, torch.Generator)):
        raise _NoKeyError
    return value


def _turned(tensor: Tensor) -> bool:
    """Return whether values are still to be conjugated or negated."""
    return tensor.is_conj() or tensor.is_neg()


def _made_like(out: Any) -> Any:
    """Return new tensors of the shapes and types of those in ``out``."""
    if isinstance(out, Tensor):
        return torch.empty_strided(
            out.shape, out.stride(), dtype=out.dtype, device="meta"
        )
    if isinstance(out, (list, tuple)):
        return type(out)([_made_like(item) for item in out])
    return out


def _sizes(out: Any) -> list[int]:
    """Return the bytes of each storage under the tensors in ``out``."""
    storages = [tensor.untyped_storage() for tensor in tensors_in(out)]
    return [s.nbytes() for s in {s._cdata: s for s in storages}.values()]
