"""Random numbers on simulated devices: generators, seeds, states.

PyTorch makes ``torch.Generator(device="sim:1")`` in C++, which does not ask a
backend made in Python. So a class stands in for ``torch.Generator``: for a
simulated device it makes a ``SimGenerator``, for any other one of PyTorch's.
A ``SimGenerator`` is one of the CPU, or of the GPU that holds the values, and
says that it is on ``sim:1``. On the CPU it draws what a generator of the CPU
draws from the same seed; a GPU draws other numbers.

Without a generator all devices draw from one of PyTorch's, where on CUDA each
has its own: what seeds a device here seeds them all. On the CPU it is the
CPU's, which is seeded with them.
"""

from typing import Any
from weakref import WeakValueDictionary

import torch
from torch._ops import OpOverload

from dpkit.sim.devices import names as device_names
from dpkit.sim.devices.configuration import simulation
from dpkit.sim.devices.names import DeviceLike, device_count, full_device
from dpkit.sim.operators.operations import OpCall, arguments

_Plain = torch._C.Generator


class SimGenerator(_Plain):
    """A generator that claims to be on a simulated device."""

    @staticmethod
    def __new__(  # noqa: D102
        cls: "type[SimGenerator]", device: DeviceLike
    ) -> "SimGenerator":
        on_gpu = simulation.backing.type == "cuda"
        where = simulation.backing if on_gpu else "cpu"
        return _Plain.__new__(cls, where)  # type: ignore[call-arg]

    def __init__(self, device: DeviceLike) -> None:
        self._device = full_device(device)
        _alive[_address(self)] = self

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """The device it claims to be on."""
        return device_names.shown(self._device)

    def clone_state(self) -> "SimGenerator":
        """Return another one on this device, in the same state."""
        return _restore(str(self.device), self.get_state())

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (str(self.device), self.get_state())


# By the address of the C++ object: an operation gets it in a new wrapper.
_alive: WeakValueDictionary[int, SimGenerator] = WeakValueDictionary()


def _address(generator: Any) -> int:
    return int(generator._cdata)


def _restore(device: str, state: torch.Tensor) -> SimGenerator:
    generator = SimGenerator(device)
    generator.set_state(state)
    return generator


class _Maker(type(_Plain)):  # type: ignore[misc]
    """The type of the class that stands in for ``torch.Generator``."""

    def __call__(cls, device: DeviceLike = None) -> _Plain:
        device = torch.device(
            "cpu" if device is None else device_names.read(device)
        )
        return (SimGenerator if device.type == "sim" else _Plain)(device)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _Plain)


class Generator(_Plain, metaclass=_Maker):
    """A generator of random numbers, on the CPU or another device."""

    __module__ = "torch"  # pickles of PyTorch's own generators look there


def takes_generator(func: OpOverload) -> int | None:
    """Return the position of the generator that ``func`` takes, if any."""
    kinds = [str(argument.type) for argument in func._schema.arguments]
    positions = [i for i, kind in enumerate(kinds) if "Generator" in kind]
    return positions[0] if positions else None


def check_generator(call: OpCall, device: torch.device) -> None:
    """Refuse a generator that is not for simulated devices, as CUDA does."""
    position = call.operator.generator
    if position is None:
        return
    (generator,) = arguments(call, [position])
    if generator is None:
        return
    shown = _device_of(generator)
    one_device = call.operator.name == "randperm"
    if one_device and shown != device:
        raise RuntimeError(
            f"Expected a '{device}' generator device but found '{shown}'"
        )
    if shown.type != device.type:
        raise RuntimeError(
            f"Expected a '{device.type}' device type for generator but found "
            f"'{shown.type}'"
        )


def _device_of(generator: Any) -> torch.device:
    """Return the device that a generator is for, or claims to be on."""
    found = _alive.get(_address(generator))
    return torch.device(generator.device if found is None else found._device)


def default_generator(device: DeviceLike = None) -> _Plain:
    """Return the generator that ``device`` draws from."""
    full_device(device)
    if simulation.backing.type == "cuda":  # only on CUDA
        torch.cuda.init()
        return torch.cuda.default_generators[0]
    return torch.default_generator


def manual_seed(seed: int) -> None:
    """Seed the generator of all devices."""
    default_generator().manual_seed(int(seed))


def seed_all() -> None:
    """Seed the generator of all devices with a random seed."""
    default_generator().seed()


def initial_seed() -> int:
    """Return the seed that the generator was given last."""
    return default_generator().initial_seed()


def get_rng_state(device: DeviceLike = None) -> torch.Tensor:
    """Return the state of the generator that ``device`` draws from."""
    return default_generator(device).get_state()


def set_rng_state(state: torch.Tensor, device: DeviceLike = None) -> None:
    """Set the state of the generator that ``device`` draws from."""
    default_generator(device).set_state(state)


def get_rng_state_all() -> list[torch.Tensor]:
    """Return the state of the generator, once for each device."""
    return [get_rng_state(i) for i in range(device_count())]


def set_rng_state_all(states: list[torch.Tensor]) -> None:
    """Continue from ``states``, which get_rng_state_all() returned."""
    for i, state in enumerate(states):
        set_rng_state(state, i)
