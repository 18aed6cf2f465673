"""Operations that are computed otherwise than by the CPU's own kernel.

- The cells of recurrent layers: PyTorch calls a fused cell on every device but
  the CPU, and the CPU has none. The values equal the CPU's up to rounding.
- What CUDA takes and the CPU does not: ``ctc_loss`` takes lengths from the CPU
  for what lies on a GPU, and ``histc`` takes integers there.
- What ``nn.SyncBatchNorm`` is made of is in ``statistics``, what CUDA's
  operators of attention compute in ``attention_values``, and products of
  float16 in ``half``.
"""

from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor

from dpkit.sim.devices.configuration import simulation
from dpkit.sim.kernels.attention_values import FUSED_ATTENTION
from dpkit.sim.kernels.half import HALF_PRODUCTS
from dpkit.sim.kernels.statistics import SYNC_BATCH_NORM
from dpkit.sim.kernels.without_values import run_without_values
from dpkit.sim.operators.operations import Args, Kwargs, OpCall, Operator, aten
from dpkit.sim.operators.record import STAND_INS

STAND_INS.update(SYNC_BATCH_NORM | FUSED_ATTENTION | HALF_PRODUCTS)
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def run_plain(operator: Operator, args: Args, kwargs: Kwargs) -> Any:
    """Run an operation on plain tensors, by what computes it there."""
    if simulation.graph is not None:
        return simulation.graph.run(operator, args, kwargs)
    if torch.is_inference_mode_enabled():
        # Backings are ordinary tensors in any mode.
        with torch.inference_mode(False), torch.no_grad():
            return run_plain(operator, args, kwargs)
    holder = simulation.holder
    try:
        if holder == "meta":
            return run_without_values(OpCall(operator, args, kwargs))
        if holder == "cuda":  # only on CUDA
            args, kwargs = _blocking(operator, args, kwargs)
        return operator.run(*args, **kwargs)
    except NotImplementedError:
        func = operator.func
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


def _blocking(
    operator: Operator, args: Args, kwargs: Kwargs
) -> tuple[Args, Kwargs]:  # only on CUDA
    """Return a copy as one that the host waits for, all else as it is.

    The program will wait for it on the simulated clock. Nobody would wait for
    the GPU that holds the values.
    """
    if operator.name == "copy_" and len(args) > 2:
        args = (*args[:2], False)  # copy_(target, source, non_blocking)
    if kwargs.get("non_blocking"):
        kwargs = {**kwargs, "non_blocking": False}
    return args, kwargs


def lstm_cell(
    input_gates: Tensor, hidden_gates: Tensor, cell: Tensor, *biases: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the next state, the next cell, and what backward would keep.

    Args:
        input_gates: What the input gives the gates, shape (b, 4h).
        hidden_gates: What the state gives them, shape (b, 4h).
        cell: The cell, shape (b, h).
        biases: None, or a bias for the input's and one for the state's.
    """
    # Columns of the gates, h of each: input | forget | cell | output.
    from_input, from_state = _biased([input_gates, hidden_gates], biases)
    gates = from_input + from_state
    enter, forget, new, leave = gates.chunk(4, dim=1)
    next_cell = forget.sigmoid() * cell + enter.sigmoid() * new.tanh()
    return leave.sigmoid() * next_cell.tanh(), next_cell, torch.empty(0)


def gru_cell(
    input_gates: Tensor, hidden_gates: Tensor, state: Tensor, *biases: Any
) -> tuple[Tensor, Tensor]:
    """Return the next state, and what backward would keep.

    Args:
        input_gates: What the input gives the gates, shape (b, 3h).
        hidden_gates: What the state gives them, shape (b, 3h).
        state: The state, shape (b, h).
        biases: None, or a bias for the input's and one for the state's.
    """
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
    """Stand in for ``ctc_loss``: the host reads the lengths from tensors.

    Args:
        log_probs: Of shape (time, batch, classes).
        targets: The labels, of shape (batch, longest) or one behind another.
        inputs: The lengths in time, of shape (batch,).
        labels: The numbers of labels, of shape (batch,).
        *more: PyTorch's settings: the blank, the reduction.
    """
    lengths = inputs.tolist(), labels.tolist()
    loss: Tensor = aten.ctc_loss.IntList(log_probs, targets, *lengths, *more)
    return loss
