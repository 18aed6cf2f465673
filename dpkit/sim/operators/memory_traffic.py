"""The memory traffic of an operation: the bytes it reads and writes.

Most operators read each input once and write each result once. What is known
of others is in ``sim.hardware.memory_traffic``.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from torch import Tensor

from dpkit.sim.containers import tensors_in
from dpkit.sim.hardware.kernel_traffic import (
    MEMORY_PASSES,
    ONLY_WRITES,
    READS_WHAT_IT_WRITES,
    SHARED_ROW_BYTES,
    SOFTMAX_PASSES,
)
from dpkit.sim.operators.operations import OpCall

# From the call, the tensors in it, and what it writes.
CountMemoryTraffic = Callable[[OpCall, Sequence[Tensor], Any], int]
# Where their arguments say whether they train; if not, each is read once.
_TRAINS = {"native_batch_norm": 5, "native_batch_norm_backward": 7}


def memory_traffic_of(name: str) -> CountMemoryTraffic:
    """Return how the memory traffic of an operator is counted, by its name."""
    if name in READS_WHAT_IT_WRITES:
        return partial(_times_what_is_written, 2)
    if name in ONLY_WRITES:
        return partial(_times_what_is_written, 1)
    if name == "convolution_backward":
        return _of_gradients
    if name in _TRAINS:
        return partial(_of_batch_norm, *MEMORY_PASSES[name], _TRAINS[name])
    if name in SOFTMAX_PASSES:
        return partial(_of_softmax, *SOFTMAX_PASSES[name])
    if name in MEMORY_PASSES:
        return partial(_times, *MEMORY_PASSES[name])
    return each_once


def each_once(call: OpCall, inputs: Sequence[Tensor], written: Any) -> int:
    """Return the bytes of all inputs and all results."""
    total = _num_bytes(written)
    for x in inputs:
        total += x.nbytes
    return total


def _num_bytes(written: Any) -> int:
    if isinstance(written, Tensor):
        return written.nbytes
    return sum(x.nbytes for x in tensors_in(written))


def _times(
    reads: int,
    writes: int,
    call: OpCall,
    inputs: Sequence[Tensor],
    written: Any,
) -> int:
    """Return those bytes for kernels that read or write several times."""
    read = sum(x.nbytes for x in inputs)
    return reads * read + writes * _num_bytes(written)


def _times_what_is_written(
    times: int, call: OpCall, inputs: Sequence[Tensor], written: Any
) -> int:
    return times * _num_bytes(written)


def _of_batch_norm(
    reads: int,
    writes: int,
    position: int,
    call: OpCall,
    inputs: Sequence[Tensor],
    written: Any,
) -> int:
    """Return the bytes that batch norm moves: in evaluation each once."""
    reads = reads if call.args[position] else 1
    return _times(reads, writes, call=call, inputs=inputs, written=written)


def _of_softmax(
    position: int,
    short: int,
    long: int,
    writes: int,
    call: OpCall,
    inputs: Sequence[Tensor],
    written: Any,
) -> int:
    """Return the bytes that a softmax moves: more if its rows are long."""
    x = inputs[0]
    row = x.shape[call.args[position]] if x.ndim else 1
    fits = row * x.itemsize < SHARED_ROW_BYTES
    reads = short if fits else long
    return _times(reads, writes, call=call, inputs=inputs, written=written)


def _of_gradients(call: OpCall, inputs: Sequence[Tensor], written: Any) -> int:
    """Return what backward of a convolution moves.

    There is a kernel for each gradient that is asked for, and each reads the
    gradient of the output.
    """
    again: int = (sum(call.args[-1]) - 1) * call.args[0].nbytes
    return each_once(call, inputs, written) + again
