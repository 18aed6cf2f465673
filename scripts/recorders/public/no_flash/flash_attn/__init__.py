"""Stands in for CUDA kernels that a script imports and does not call.

The names are there; calling one is an error.
"""

from typing import Any


def not_there(*args: Any, **kwargs: Any) -> Any:
    """Stand in for a kernel.

    Raises:
        NotImplementedError: always.
    """
    raise NotImplementedError("flash_attn is CUDA's")
