"""PyTorch's ``context_parallel`` where there is no GPU.

In a block of ``context_parallel``, queries, keys and values become DTensors,
and handlers take each call of one of CUDA's kernels of attention to PyTorch's
ring. The CPU's kernel has none, which ranks of gloo call, and simulated ranks
in float64. This adds them, forward and backward::

    scaled_dot_product_attention
      │ chooses a kernel by device and dtype
      ├─▶ flash, efficient, cudnn ──▶ PyTorch's handlers ──▶ PyTorch's ring,
      │                                                      with this kernel
      └─▶ flash for the CPU ────────▶ the handlers here ───▶ the same

GPUs do not need it, and neither do simulated ranks in 16 and 32 bits.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch

_forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
_backward = (
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default
)
_POSITIONS = 2  # their dimension, in (b, heads, positions, size)


def use_cpu_kernel_in_ring() -> None:
    """Give ``context_parallel`` the CPU's kernel, in this process.

    Every rank calls it before its first block of ``context_parallel``.
    Attention may have a causal mask, and no other. What PyTorch asks for on
    GPUs stays: a buffer that requires gradients begins to do so in the block.

    Example:
        >>> from torch.distributed.device_mesh import init_device_mesh
        >>> from torch.distributed.tensor.experimental import context_parallel
        >>> def shape_inside():
        ...     use_cpu_kernel_in_ring()
        ...     mesh = init_device_mesh("sim", (2,))
        ...     x = torch.zeros(1, 3, 8, 4, dtype=torch.float64, device="sim")
        ...     with context_parallel(mesh, buffers=[x], buffer_seq_dims=[2]):
        ...         y = nn.functional.scaled_dot_product_attention(
        ...             x, x, x, is_causal=True
        ...         )
        ...     return tuple(y.shape)
        >>> dpkit.sim.launch(shape_inside, 2)
        [(1, 3, 4, 4), (1, 3, 4, 4)]
    """
    handlers = _library().custom_ops
    handlers[_forward] = _attend
    handlers[_backward] = _differentiate


def _library() -> ModuleType:
    # Here, not above: it takes seconds.
    from torch.distributed.tensor.experimental._context_parallel import (
        _attention,
    )

    return _attention


def _attend(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the outputs of DTensors, and L, by PyTorch's ring."""
    names = "query", "key", "value", "dropout_p", "is_causal"
    given = {"dropout_p": 0.0, "is_causal": False, **dict(zip(names, args))}
    return _go_round(
        _library()._templated_ring_attention, _forward, given | kwargs
    )


def _differentiate(
    _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Return the gradients of queries, keys and values, by PyTorch's ring."""
    names = [argument.name for argument in _backward._schema.arguments]
    given = {"grad_out_name": "grad_out", **dict(zip(names, args))}
    return _go_round(
        _library()._templated_ring_attention_backward,
        _backward,
        given | kwargs,
    )


def _go_round(ring: Any, kernel: Any, given: dict[str, Any]) -> Any:
    """Call PyTorch's ring with the parts of a rank; return DTensors.

    Args:
        ring: Its function, forward or backward.
        kernel: The kernel that it calls for each block.
        given: The arguments of the kernel by their names, with DTensors.
    """
    from torch.distributed.tensor import DTensor, Shard

    mask = given.pop("attn_mask", None)
    if mask is not None:
        raise NotImplementedError(
            "PyTorch's ring takes no mask but is_causal=True (mask: "
            f"{tuple(mask.shape)})"
        )
    mesh = given["query"].device_mesh
    with torch.no_grad(), _summed_as_wide_as(given["query"].dtype):
        parts = {
            name: x.to_local() if isinstance(x, DTensor) else x
            for name, x in given.items()
        }
        found = ring(mesh.get_group(), _POSITIONS, kernel, **parts)
        cut = [Shard(_POSITIONS)]
        return tuple(
            DTensor.from_local(x, mesh, cut, run_check=False) for x in found
        )


@contextmanager
def _summed_as_wide_as(dtype: torch.dtype) -> Iterator[None]:
    """Keep what PyTorch adds up over blocks in float64 for tensors of that.

    It keeps it in float32 by default, which is less.
    """
    options = _library()._cp_options
    before = options.convert_to_f32
    options.convert_to_f32 = before and dtype != torch.float64
    try:
        yield
    finally:
        options.convert_to_f32 = before
