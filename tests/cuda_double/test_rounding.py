"""Values of the double that differ from the CPU's as a GPU's do."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
TF32 = 2.0**-11  # half of what the last of 10 bits is worth
Ask = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def ask(run: Any) -> Ask:
    @cache
    def ask(rounding: str, capability: str = "8.0", again: int = 0) -> Any:
        ended = run(
            1,
            HERE / "program_of_rounding.py",
            CUDA_DOUBLE_ROUNDING=rounding,
            CUDA_DOUBLE_CAPABILITY=capability,
        )
        assert ended.returncode == 0, ended.stderr
        return json.loads(ended.stdout.splitlines()[-1])

    return ask


def test_values_are_the_cpus_unless_that_is_asked_for(ask: Ask) -> None:
    found = {**ask("")}
    assert len(found.pop("digits")) == 400
    assert [*filter(None, found.values())] == [True] * 4


@pytest.mark.parametrize(
    ("what", "least", "most"),
    [
        ("convolution", TF32 / 4, TF32),
        ("convolution without TF32", 1e-7, 4e-7),
        ("product", 1e-7, 4e-7),
        ("product in float64", 2e-16, 8e-16),
        ("product with TF32", TF32 / 4, TF32),
        ("exp", 5e-8, 4e-7),
        ("mean of three", 5e-8, 4e-7),
        ("added at indices", 5e-8, 4e-7),
    ],
)
def test_a_sum_has_other_last_bits(
    what: str, least: float, most: float, ask: Ask
) -> None:
    assert least < ask("1")[what] < most


@pytest.mark.parametrize(
    "what", ["whole product", "mean of four", "mean of one", "put"]
)
def test_what_is_exact_in_any_order_stays(what: str, ask: Ask) -> None:
    assert ask("1")[what] == 0


def test_zeros_stay(ask: Ask) -> None:
    assert ask("1")["zeros stay"]


def test_a_t4_has_no_tf32(ask: Ask) -> None:
    found = ask("1", capability="7.5")
    assert 1e-7 < found["convolution"] < 4e-7
    assert 1e-7 < found["product with TF32"] < 4e-7


def test_what_is_deterministic_repeats_itself(ask: Ask) -> None:
    found = ask("1")
    assert found["linear twice"]
    assert not found["convolution twice"]
    assert found["deterministic convolution twice"]


def test_the_number_is_a_seed(ask: Ask) -> None:
    assert ask("1")["digits"] == ask("1", again=1)["digits"]
    assert ask("1")["digits"] != ask("2")["digits"]
