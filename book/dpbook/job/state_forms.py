"""Checks that a state that was saved fits the run that would resume from it.

The forms of a state say which parts it has, of which kinds and shapes. Empty
dictionaries count too: ``torch.utils._pytree`` would not show them.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor


def forms(whole: Any, path: str = "state") -> dict[str, str]:
    """Return the kind of each part of a state, and the shapes of tensors.

    Example:
        >>> forms({"w": torch.ones(2, 3)})
        {'state': 'dict', 'state/w': 'float32 of shape (2, 3)'}
    """
    if isinstance(whole, Tensor):
        return {path: _form(whole)}
    if not isinstance(whole, Mapping):
        return {path: type(whole).__name__}
    found = {path: "dict"}
    for key, part in whole.items():
        found |= forms(part, f"{path}/{key}")
    return found


def check_fit(state: Any, wanted: Mapping[str, str]) -> None:
    """Raise a ValueError if a part of a state has not the wanted form.

    It names the first such part. Extra parts are allowed except tensors.
    Whether it fits does not depend on values: see ``not_finite``.

    Example:
        >>> wanted = forms({"w": torch.zeros(2, 3), "step": 0})
        >>> check_fit({"w": torch.ones(2, 3)}, wanted)
        Traceback (most recent call last):
            ...
        ValueError: does not fit this run (state/step: none there, int here)
    """
    try:
        found = forms(state)
    except RecursionError as error:  # a dictionary may hold itself
        raise ValueError("does not fit this run (nested too deep)") from error
    extra = {p for p, form in found.items() if "shape" in form} - wanted.keys()
    for path in (*wanted, *sorted(extra)):
        there, here = (f.get(path, "none") for f in (found, wanted))
        if there != here:
            raise ValueError(
                f"does not fit this run ({path}: {there} there, {here} here)"
            )


def not_finite(whole: Any, path: str = "state") -> str:
    """Return the first tensor of a state with a value that is not finite.

    Returns:
        Its place, and how many of its values are infinite or NaN; "" if all
        values are finite.

    Example:
        >>> not_finite({"w": torch.tensor([1.0, torch.inf, torch.nan])})
        'state/w: 2 of 3 values are not finite'
        >>> not_finite({"w": torch.ones(3)})
        ''
    """
    if isinstance(whole, Tensor):
        total = whole.numel()
        if count := total - int(whole.isfinite().sum()):
            return f"{path}: {count} of {total} values are not finite"
    elif isinstance(whole, Mapping):
        for key, part in whole.items():
            if found := not_finite(part, f"{path}/{key}"):
                return found
    return ""


def _form(tensor: Tensor) -> str:
    """Return the type and the shape of a tensor, and where its values are.

    Nothing is said of values that lie in an array, as those of a run do. A
    tensor on meta has none, and those of a sparse one lie elsewhere.
    """
    dtype = str(tensor.dtype).removeprefix("torch.")
    form = f"{dtype} of shape {tuple(tensor.shape)}"
    if tensor.is_meta:
        return f"{form} without values (meta)"
    if tensor.layout != torch.strided:
        layout = str(tensor.layout).removeprefix("torch.")
        return f"{form} stored as {layout}"
    return form
