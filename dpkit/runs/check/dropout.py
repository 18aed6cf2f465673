"""Dropout that drops nothing, so that runs compute the same.

Random numbers are drawn as before. A rank draws others than one rank does for
the examples of all, so that gradients could not be compared.
"""

from collections.abc import Callable
from contextlib import ExitStack
from functools import wraps
from typing import Any

import torch
from torch import nn

from dpkit.sim.changes import replaced

_DROPOUTS = (
    *("dropout", "dropout1d", "dropout2d", "dropout3d"),
    *("alpha_dropout", "feature_alpha_dropout"),
)
_ATTENTION = "scaled_dot_product_attention"


class RandomNumbers:
    """Leaves dropout out, and sees whether others draw random numbers."""

    def __init__(self) -> None:
        self._expected: torch.Tensor | None = None  # the generator's state
        self._are_others = False

    def begin(self, stack: ExitStack) -> None:
        """Leave dropout out until a stack ends."""
        functions: Any = nn.functional
        for name in _DROPOUTS:
            new = self._dropping_nothing(getattr(functions, name))
            stack.callback(replaced(functions, name, new).apply())
        attention = self._without_dropout(getattr(functions, _ATTENTION))
        stack.callback(replaced(functions, _ATTENTION, attention).apply())

    def start(self) -> None:
        """Begin to look at who draws."""
        self._expected = torch.get_rng_state()
        self._are_others = False

    def stop(self) -> bool:
        """Return whether others than dropout have drawn since the start."""
        self._look()
        self._expected = None
        return self._are_others

    def _look(self) -> None:
        if self._expected is not None:
            is_same = torch.equal(self._expected, torch.get_rng_state())
            self._are_others = self._are_others or not is_same

    def _drawing(self, draw: Callable[[], Any]) -> None:
        """Draw the numbers of a dropout."""
        self._look()
        with torch.no_grad():
            draw()
        if self._expected is not None:
            self._expected = torch.get_rng_state()

    def _dropping_nothing(self, dropout: Any) -> Any:
        @wraps(dropout)
        def run(input: Any, *args: Any, **kwargs: Any) -> Any:
            self._drawing(
                lambda: dropout(torch.empty_like(input), *args, **kwargs)
            )
            return input

        return run

    def _without_dropout(self, attention: Any) -> Any:
        @wraps(attention)
        def run(
            query: Any,
            key: Any,
            value: Any,
            attn_mask: Any = None,
            dropout_p: float = 0.0,
            *args: Any,
            **kwargs: Any,
        ) -> Any:
            def attend(share: float) -> Any:
                given = query, key, value, attn_mask, share, *args
                return attention(*given, **kwargs)

            if dropout_p:
                self._drawing(lambda: attend(dropout_p))
            return attend(0.0)

        return run
