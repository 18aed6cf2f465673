"""The checks of the exercises on splitting tell wrong answers from right."""

import pytest

from dpkit.lab.common.checks import failure


def rows(num_devices, operations_per_byte, by_parts):
    times = (num_devices - 1) / (num_devices if by_parts else 1)
    return 4 / 3 * times * operations_per_byte


def devices(way, num_parameters, memory_bytes, size=16):
    needed = size * num_parameters
    if way == "data":
        return 1 if needed <= memory_bytes else None
    return -(-needed // memory_bytes)


def named(name, answer):
    answer.__name__ = name
    return answer


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (lambda k, ratio, by_parts: rows(k, ratio, False), "by_parts=True"),
        (lambda k, ratio, by_parts: rows(k, ratio, by_parts) / 2, "expected"),
        (lambda k, ratio, by_parts: None, "it returned None"),
    ],
)
def test_wrong_rows(answer, why):
    assert why in failure(named("rows_to_hide", answer))


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (lambda *args: devices(*args, size=4), "it returned"),
        (lambda way, *args: devices("layer", *args), "expected None"),
        (lambda way, n, memory: 16 * n // memory, "expected 1"),
        (lambda way, n, m: 16 * n // m + 1, "it returned 2, expected 1"),
    ],
)
def test_wrong_numbers_of_devices(answer, why):
    assert why in failure(named("least_devices", answer))


def test_right_answers():
    assert failure(named("rows_to_hide", rows)) is None
    assert failure(named("least_devices", devices)) is None


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (("1f1b", 16), "88 ms, where 85"),  # small enough, and too slow
        (("gpipe", 16), "206 MB, where 60"),  # fast enough, and too large
        (("zb-h1", 16), None),
        (("zb-h1", 32), None),
    ],
)
def test_a_pipeline_has_two_targets(answer, why):
    found = failure(named("fast_and_small", lambda: answer))
    assert found is None if why is None else why in found


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (("layer", 2, True), "43 ms, where 42"),  # sends little enough
        (("layer", 2, False), "where 42"),
        (("network", 4, False), None),
    ],
)
def test_two_nodes_have_two_targets(answer, why):
    found = failure(named("two_nodes", lambda: answer))
    assert found is None if why is None else why in found
