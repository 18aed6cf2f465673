"""Operations that are computed otherwise than by the CPU's own kernel.

- Attention: PyTorch would compose it of products and a softmax on a device
  that it does not know, which rounds in another order. Here it is the kernel
  that PyTorch chooses on the CPU.
- The cells of recurrent layers: PyTorch calls a fused cell on every device but
  the CPU, and the CPU has none. The values equal the CPU's up to rounding.
- What CUDA takes and the CPU does not: ``ctc_loss`` takes lengths from the CPU
  for what lies on a GPU, and ``histc`` takes integers there. What
  ``nn.SyncBatchNorm`` is made of is in ``statistics``.
"""

from itertools import zip_longest
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend

from dpkit.sim.behaviour import plain
from dpkit.sim.configuration import simulation
from dpkit.sim.kernels.statistics import ABSENT
from dpkit.sim.kernels.without_numbers import run_without_numbers
from dpkit.sim.operations import OpCall, aten

INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def run_plain(call: OpCall) -> Any:
    """Run an operation on plain tensors."""
    func, args, kwargs = call
    try:
        if simulation.backing.type == "meta":
            return run_without_numbers(call)
        if torch.is_inference_mode_enabled():
            # Backings are ordinary tensors in any mode.
            with torch.inference_mode(False), torch.no_grad():
                return func(*args, **kwargs)
        return ABSENT.get(func, func)(*args, **kwargs)
    except NotImplementedError:
        if func is aten.histc.default and args[0].dtype in INTEGERS:
            # CUDA rounds the limits towards zero, and then counts integers
            # as the CPU counts equal floats.
            counts = func(args[0].double(), *map(int, args[1:]), **kwargs)
            return counts.to(args[0].dtype)
        raise
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
    **options: Any,
) -> Tensor:
    """Stand in for ``torch.nn.functional.scaled_dot_product_attention``."""
    if is_causal and attn_mask is not None:
        raise RuntimeError(
            "_scaled_dot_product_attention: Explicit attn_mask should not be "
            "set when is_causal=True"
        )
    operands, mask = [query, key, value], attn_mask
    if mask is not None and mask.dtype == torch.bool:
        nothing = torch.zeros_like(mask, dtype=query.dtype)
        mask = nothing.masked_fill_(mask.logical_not(), -torch.inf)
    like = [None if x is None else _on_cpu_like(x) for x in (*operands, mask)]
    choice = aten._fused_sdp_choice(*like, dropout_p, is_causal, **options)
    composes = choice != SDPBackend.FLASH_ATTENTION.value
    learnt_mask = mask is not None and mask.requires_grad
    on_gpu = simulation.backing.type == "cuda"
    if composes or learnt_mask or on_gpu:
        if is_causal and plain(query) is query:  # a DTensor takes DTensors
            square = query.shape[-2], key.shape[-2]
            mask = query.new_full(square, -torch.inf).triu(1)
            is_causal = False
        rest = mask, dropout_p, is_causal
        math = aten._scaled_dot_product_attention_math
        return cast(Tensor, math(*operands, *rest, **options)[0])
    missing = 4 - query.dim()  # the kernel wants a batch of heads
    fused: Tensor = aten._scaled_dot_product_flash_attention_for_cpu(
        *[x[(None,) * missing] for x in operands],
        dropout_p,
        is_causal,
        attn_mask=mask,
        scale=options.get("scale"),
    )[0]
    return fused.flatten(0, missing) if missing else fused


def _on_cpu_like(tensor: Tensor) -> Tensor:
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
