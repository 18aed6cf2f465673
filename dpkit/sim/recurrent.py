"""The cells of recurrent layers, composed of operations.

PyTorch calls a fused cell on every device but the CPU, and the CPU has none.
The values equal the CPU's up to rounding.
"""

from __future__ import annotations

import torch
from torch import Tensor


def lstm_cell(
    input_gates: Tensor,
    hidden_gates: Tensor,
    cell: Tensor,
    input_bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the next state, the next cell, and what backward would keep.

    Args:
        input_gates: Shape (b, 4·h): input, forget, cell and output gate.
        hidden_gates: The same, from the state.
        cell: Shape (b, h).
        input_bias: Shape (4·h,).
        hidden_bias: Shape (4·h,).
    """
    gates = _add(input_gates, input_bias) + _add(hidden_gates, hidden_bias)
    enter, forget, new, leave = gates.chunk(4, dim=1)
    next_cell = forget.sigmoid() * cell + enter.sigmoid() * new.tanh()
    return leave.sigmoid() * next_cell.tanh(), next_cell, torch.empty(0)


def gru_cell(
    input_gates: Tensor,
    hidden_gates: Tensor,
    state: Tensor,
    input_bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the next state, and what backward would keep.

    Args:
        input_gates: Shape (b, 3·h): reset gate, update gate, new state.
        hidden_gates: The same, from the state.
        state: Shape (b, h).
        input_bias: Shape (3·h,).
        hidden_bias: Shape (3·h,).
    """
    from_input = _add(input_gates, input_bias).chunk(3, dim=1)
    from_state = _add(hidden_gates, hidden_bias).chunk(3, dim=1)
    reset = (from_input[0] + from_state[0]).sigmoid()
    update = (from_input[1] + from_state[1]).sigmoid()
    new = (from_input[2] + reset * from_state[2]).tanh()
    return (state - new) * update + new, torch.empty(0)


def _add(gates: Tensor, bias: Tensor | None) -> Tensor:
    return gates if bias is None else gates + bias
