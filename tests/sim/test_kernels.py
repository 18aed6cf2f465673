"""Tests of dpkit.sim.kernels: what makes a tensor takes its own bytes."""

import pytest
import torch

from dpkit import sim

sim.register()

FACTORIES = {
    "zeros": lambda d: torch.zeros(50, 3, device=d),
    "zeros in half": lambda d: torch.zeros(50, dtype=torch.float16, device=d),
    "ones of bytes": lambda d: torch.ones(50, dtype=torch.uint8, device=d),
    "full of truth": lambda d: torch.full((500,), True, device=d),
    "full of integers": lambda d: torch.full((500,), 3, device=d),
    "full of floats": lambda d: torch.full((500,), 3.0, device=d),
    "full of complex": lambda d: torch.full((500,), 3j, device=d),
    "tensor": lambda d: torch.tensor([True, False], device=d),
    "scalar": lambda d: torch.scalar_tensor(3, device=d),
    "empty": lambda d: torch.empty(7, dtype=torch.complex128, device=d),
    "strided": lambda d: torch.empty_strided((10, 2), (50, 1), device=d),
    "permuted": lambda d: torch.empty_permuted((2, 3), (1, 0), device=d),
    "arange of integers": lambda d: torch.arange(500, device=d),
    "arange of floats": lambda d: torch.arange(0.0, 500, device=d),
    "arange with steps": lambda d: torch.arange(1, 500, 7, device=d),
    "linspace": lambda d: torch.linspace(0, 1, 500, device=d),
    "logspace": lambda d: torch.logspace(0, 1, 500, device=d),
    "eye": lambda d: torch.eye(20, device=d),
    "eye with columns": lambda d: torch.eye(20, 30, device=d),
    "rand": lambda d: torch.rand(50, device=d),
    "randint": lambda d: torch.randint(3, (500,), device=d),
    "randint from": lambda d: torch.randint(1, 3, (500,), device=d),
    "randperm": lambda d: torch.randperm(500, device=d),
    "randn by a generator": lambda d: torch.randn(
        50, generator=torch.Generator(d), device=d
    ),
    "normal": lambda d: torch.normal(0.0, 1.0, (50,), device=d),
    "tril_indices": lambda d: torch.tril_indices(9, 9, device=d),
    "hann_window": lambda d: torch.hann_window(50, device=d),
    "kaiser_window": lambda d: torch.kaiser_window(50, device=d),
    "fftfreq": lambda d: torch.fft.fftfreq(50, device=d),
}
factories = pytest.mark.parametrize("name", FACTORIES)


CAPACITY = 10**8


@pytest.fixture
def leave():
    """Return a function that fills sim:1, but for some bytes."""
    with sim.machine(memory_bytes=CAPACITY):
        filler = []

        def fill(num_bytes):
            used = torch.sim.memory_allocated(1)
            filler.append(
                torch.empty(
                    CAPACITY - used - num_bytes,
                    dtype=torch.uint8,
                    device="sim:1",
                )
            )

        yield fill
        filler.clear()


@factories
def test_it_fits_where_its_bytes_do(name, leave):
    make = FACTORIES[name]
    on_cpu = make("cpu")
    leave(on_cpu.untyped_storage().nbytes())
    made = make("sim:1")
    assert made.dtype == on_cpu.dtype
    assert made.stride() == on_cpu.stride()
    assert torch.sim.memory_allocated(1) == CAPACITY


@factories
def test_one_byte_less_is_not_enough(name, leave):
    make = FACTORIES[name]
    num_bytes = make("cpu").untyped_storage().nbytes()
    leave(num_bytes - 1)
    state = torch.get_rng_state()
    with pytest.raises(torch.OutOfMemoryError, match="sim out of memory"):
        make("sim:1")
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.eye(10**6, device="sim:0"),
        lambda: torch.arange(10**12, device="sim:0"),
        lambda: torch.randint(9, (10**6, 10**6), device="sim:0"),
    ],
)
def test_more_than_this_machine_has(make):
    """It is refused before memory is taken."""
    with pytest.raises(torch.OutOfMemoryError, match="sim out of memory"):
        make()
