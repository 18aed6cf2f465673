"""Random numbers from a generator: ``torch.Generator(device="sim:1")``.

PyTorch makes the generator of a backend in C++, where a backend from Python
has no say. So a class stands in for ``torch.Generator``: for a simulated
device it makes a ``SimGenerator``, for any other one of PyTorch's own.

A ``SimGenerator`` is a generator of the CPU that says that it is on ``sim:1``.
It draws the numbers that the CPU draws from the same seed. If a GPU holds the
numbers, one of the GPU draws in its place. Operations on the CPU do not refuse
it, as they would one of CUDA.
"""

from __future__ import annotations

from typing import Any, Self
from weakref import WeakValueDictionary

import torch

from dpkit.sim.configuration import simulation
from dpkit.sim.numbering import Device, full_device

Plain = torch._C.Generator


class SimGenerator(Plain):
    """A generator on a simulated device.

    Args:
        device: The device it claims to be on.
    """

    @staticmethod
    def __new__(  # noqa: D102
        cls: type[SimGenerator], device: Device
    ) -> SimGenerator:
        return Plain.__new__(cls, "cpu")  # type: ignore[call-arg]

    def __init__(self, device: Device) -> None:
        self._device = full_device(device)
        on_gpu = simulation.backing.type == "cuda"
        self._on_gpu = Plain(simulation.backing) if on_gpu else None
        _alive[_address(self)] = self

    @property
    def inner(self) -> Plain:
        """The generator that draws: this one, or that of the GPU."""
        return self if self._on_gpu is None else self._on_gpu

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """The device it claims to be on."""
        return self._device

    def manual_seed(self, seed: int) -> Self:
        """Begin anew, as ``seed`` says."""
        Plain.manual_seed(self.inner, seed)
        return self

    def seed(self) -> int:
        """Begin anew, as chance says; return the seed."""
        return Plain.seed(self.inner)

    def initial_seed(self) -> int:
        """Return the seed that it began with."""
        return Plain.initial_seed(self.inner)

    def get_state(self) -> torch.Tensor:
        """Return its state, a tensor on the CPU."""
        return Plain.get_state(self.inner)

    def set_state(self, state: torch.Tensor) -> Self:
        """Go on as from ``state``."""
        Plain.set_state(self.inner, state)
        return self

    def clone_state(self) -> SimGenerator:
        """Return another one on this device, in the same state."""
        return SimGenerator(self.device).set_state(self.get_state())

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (str(self.device), self.get_state())


# By the address of the C++ object: an operation gets it in a new wrapper.
_alive: WeakValueDictionary[int, SimGenerator] = WeakValueDictionary()


def simulated(generator: torch._C.Generator) -> SimGenerator | None:
    """Return the simulated generator that this is; None if it is another."""
    return _alive.get(_address(generator))


def _address(generator: Any) -> int:
    """Return where the C++ object is; all its wrappers have the same."""
    return int(generator._cdata)


def _restore(device: str, state: torch.Tensor) -> SimGenerator:
    """Return the generator that was pickled or copied."""
    return SimGenerator(device).set_state(state)


class _Maker(type(Plain)):  # type: ignore[misc]
    """The type of the class that stands in for ``torch.Generator``."""

    def __call__(cls, device: Device = None) -> Plain:
        device = torch.device("cpu" if device is None else device)
        return (SimGenerator if device.type == "sim" else Plain)(device)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, Plain)


class Generator(Plain, metaclass=_Maker):
    """A generator of random numbers, on the CPU or any other device.

    Args:
        device: The device; None: the CPU.
    """

    __module__ = "torch"  # pickles of PyTorch's own generators look there
