"""Seeds of the numbers that simulated devices draw without a generator.

All of them draw from one generator, the CPU's: after ``torch.manual_seed`` a
program draws on a simulated device what it would draw on the CPU. On CUDA each
device has a generator of its own. So what seeds a device here seeds them all,
and the CPU.
"""

from __future__ import annotations

import torch

from dpkit.sim.configuration import simulation
from dpkit.sim.numbering import Device, device_count, full_device


def default_generator(device: Device = None) -> torch._C.Generator:
    """Return the generator that ``device`` draws from.

    Raises:
        RuntimeError: there is no such device.
    """
    full_device(device)
    if simulation.backing.type == "cuda":  # only on CUDA
        torch.cuda.init()
        return torch.cuda.default_generators[0]
    return torch.default_generator


def manual_seed(seed: int) -> None:
    """Let the numbers drawn from now on be those of ``seed``."""
    default_generator().manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Let the numbers drawn from now on be those of ``seed``."""
    manual_seed(seed)


def seed() -> None:
    """Let the numbers drawn from now on be those of a seed of chance."""
    default_generator().seed()


def seed_all() -> None:
    """Let the numbers drawn from now on be those of a seed of chance."""
    seed()


def initial_seed() -> int:
    """Return the seed that the generator was given last."""
    return default_generator().initial_seed()


def get_rng_state(device: Device = None) -> torch.Tensor:
    """Return the state of the generator that ``device`` draws from."""
    return default_generator(device).get_state()


def set_rng_state(state: torch.Tensor, device: Device = None) -> None:
    """Let the generator that ``device`` draws from go on as from ``state``."""
    default_generator(device).set_state(state)


def get_rng_state_all() -> list[torch.Tensor]:
    """Return the state of the generator, once for each device."""
    return [get_rng_state(i) for i in range(device_count())]


def set_rng_state_all(states: list[torch.Tensor]) -> None:
    """Go on as from ``states``, which get_rng_state_all() returned."""
    for i, state in enumerate(states):
        set_rng_state(state, i)
