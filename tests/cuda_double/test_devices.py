"""The double computes as the CPU does, and refuses what CUDA refuses."""

from typing import Any

import pytest


@pytest.fixture
def outcomes(outcomes_of: Any) -> dict[str, Any]:
    return outcomes_of("cases_of_devices.py")


@pytest.mark.parametrize(
    ("case", "value"),
    [
        ("training_as_on_the_cpu", [True, True]),
        ("a_thread_for_each_device", [2, 2]),
        ("data_parallel", ["cuda:0", True, True]),
        ("lstm", True),
        ("gru", True),
        ("rms_norm", True),
        ("attention", True),
        (
            "attention_keeps_its_switches",
            ["_scaled_dot_product_efficient_attention"],
        ),
        ("products_in_16_bits", [True] * 8),
        ("a_deep_copy", ["cuda:1", 6, 12]),
        ("saved_and_loaded", ["cuda:1", "cuda:0", "cpu"]),
        ("random_numbers", [16, True, False, True]),
        ("dropout", [True, True]),
        ("a_number_of_the_cpu_goes", 6),
        ("indices_of_the_cpu_go", 3),
        ("an_event_waited_for_elsewhere", None),
        ("time", True),
        ("pinned", [True, True, False]),
        (
            "properties",
            [2, "NVIDIA Double", [8, 0], 15 << 30, True, "cuda"],
        ),
    ],
)
def test_value(case: str, value: object, outcomes: dict[str, Any]) -> None:
    assert outcomes[case] == {"value": value, "findings": []}


@pytest.mark.parametrize(
    ("case", "error"),
    [
        ("a_device_that_is_not_there", "CUDA error: invalid device ordinal"),
        (
            "two_devices_mixed",
            "Expected all tensors to be on the same device, but found at "
            "least two devices, cuda:0 and cuda:1!",
        ),
        ("the_cpu_mixed_in", "Expected all tensors to be on the same device"),
        ("indices_of_a_gpu_on_the_cpu", "indices should be either on cpu or"),
        ("an_event_of_another_device", "Event device"),
        ("time_between_two_devices", "invalid resource handle"),
        ("time_that_nobody_waited_for", "must be completed"),
        ("numpy_of_a_gpu", "can't convert cuda:0 device type tensor to numpy"),
    ],
)
def test_refusal(case: str, error: str, outcomes: dict[str, Any]) -> None:
    assert error in outcomes[case]["error"]
    assert outcomes[case]["findings"] == []


def test_out_of_memory_is_recovered_from(outcomes: dict[str, Any]) -> None:
    told, held, other = outcomes["out_of_memory_and_on"]["value"]
    assert "CUDA out of memory. Tried to allocate 16.00 GiB. GPU 1" in told
    assert (held, other) == (8 << 30, 9 << 30)


def test_a_kernel_that_is_not_doubled_is_named(
    outcomes: dict[str, Any],
) -> None:
    outcome = outcomes["a_kernel_that_is_not_doubled"]
    assert "operation not supported" in outcome["error"]
    assert outcome["findings"][0].startswith("not doubled: a kernel")
