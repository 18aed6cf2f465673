"""What a checkpoint holds: the settings of a run, and its state."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import torch

PARTS = ("settings", "state")


def pack(settings: Mapping[str, Any], state: Mapping[str, Any]) -> bytes:
    """Return settings and state as bytes, by ``torch.save``.

    Args:
        settings: Numbers and words.
        state: Tensors on any device, numbers and words, in dictionaries and
            lists.
    """
    buffer = io.BytesIO()
    torch.save({"settings": dict(settings), "state": dict(state)}, buffer)
    return buffer.getvalue()


def unpack(content: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the settings and the state in what a checkpoint holds.

    Nothing in it is executed: it is read with ``weights_only=True``.

    Args:
        content: As :func:`pack` returns it.

    Returns:
        The settings, and the state with its tensors on the CPU.

    Raises:
        ValueError: it holds something else.

    Example:
        >>> import torch
        >>> from dpkit.job.checkpoints import pack, unpack
        >>> unpack(pack({"lr": 0.5}, {"w": torch.ones(2, 3)}))
        ({'lr': 0.5}, {'w': tensor([[1., 1., 1.],
                [1., 1., 1.]])})
    """
    try:
        parts = torch.load(io.BytesIO(content), "cpu", weights_only=True)
    except Exception as error:  # of many kinds, none of them documented
        raise ValueError(
            f"not a checkpoint (torch.load raises: {type(error).__name__})"
        ) from error
    if not isinstance(parts, dict) or [
        type(parts.get(part)) for part in PARTS
    ] != [dict, dict]:
        raise ValueError(
            f"not a checkpoint (missing: {' or '.join(PARTS)} of a run)"
        )
    return parts["settings"], parts["state"]
