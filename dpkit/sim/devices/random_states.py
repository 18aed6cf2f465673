"""The states of the random generators, which change with the turn of a rank.

PyTorch has one on the CPU, Python has one and NumPy has one, for all ranks of
the process. Each rank begins with its own states. They are drawn from those
of the caller: two launches from the same states draw the same numbers. Two
ranks draw different ones, as two processes do, so that a launch shows where a
program forgot a seed.
"""

import random
import sys
from typing import Any, NamedTuple

import torch


class RandomStates(NamedTuple):
    """The state of each generator: of PyTorch's, Python's and NumPy's."""

    torch: torch.Tensor
    python: tuple[Any, ...]
    numpy: Any  # None while nothing has imported ``numpy.random``

    @classmethod
    def now(cls) -> "RandomStates":
        """Return the states that there are."""
        numpy = _numpy()
        return cls(
            torch.get_rng_state(),
            random.getstate(),
            None if numpy is None else numpy.get_state(),
        )

    @classmethod
    def drawn(cls) -> "RandomStates":
        """Return states that begin from seeds drawn from those there are."""
        numpy = _numpy()
        (seed,) = torch.randint(2**63 - 1, (1,), device="cpu").tolist()
        return cls(
            torch.Generator("cpu").manual_seed(seed).get_state(),
            random.Random(random.getrandbits(64)).getstate(),
            None
            if numpy is None
            else numpy.RandomState(numpy.randint(2**32, size=4)).get_state(),
        )

    def restore(self) -> None:
        """Make the generators go on from these states."""
        torch.set_rng_state(self.torch)
        random.setstate(self.python)
        numpy = _numpy()
        if numpy is not None and self.numpy is not None:
            numpy.set_state(self.numpy)


def _numpy() -> Any:
    """Return the module ``numpy.random``, if something has imported it."""
    return sys.modules.get("numpy.random")
