"""The check finds what has no order, and nothing where there is one."""

import re
from pathlib import Path
from typing import Any

import pytest

CASES = Path(__file__).with_name("cases_of_races.py")


@pytest.fixture
def outcomes(outcomes_of: Any) -> dict[str, Any]:
    return outcomes_of(CASES.name)


def line_with(text: str) -> int:
    """Number the line of the cases that a text stands in."""
    lines = CASES.read_text().splitlines()
    (number,) = [n for n, line in enumerate(lines, 1) if text in line]
    return number


@pytest.mark.parametrize(
    "case",
    [
        "a_wait_is_missing",
        "an_event_is_recorded_too_early",
        "a_copy_on_a_stream_that_nobody_waits_for",
        "what_a_peer_sends_is_used_on_the_wrong_stream",
        "one_column_twice",
        "the_host_reads_too_early",
        "the_host_writes_too_early",
        "numpy_reads_too_early",
    ],
)
def test_a_race_is_found(case: str, outcomes: dict[str, Any]) -> None:
    assert any(
        finding.startswith("race") for finding in outcomes[case]["findings"]
    )


@pytest.mark.parametrize(
    "case",
    ["record_stream_is_forgotten", "the_next_owner_of_memory_does_not_wait"],
)
def test_memory_given_back_too_early_is_found(
    case: str, outcomes: dict[str, Any]
) -> None:
    (finding,) = outcomes[case]["findings"]
    assert finding.startswith("freed too early")
    assert "write by mul_" in finding


def test_one_tensor_that_is_recorded_does_not_excuse_another(
    outcomes: dict[str, Any],
) -> None:
    case = "record_stream_is_forgotten_beside_a_right_one"
    (finding,) = outcomes[case]["findings"]
    assert "write by add_" in finding


@pytest.mark.parametrize(
    ("case", "value"),
    [
        ("a_wait_is_there", 2000),
        ("an_event_is_waited_for", 20),
        ("a_copy_on_a_stream_that_is_waited_for", 2000),
        ("what_a_peer_sends_is_waited_for", 2000),
        ("what_a_peer_sends_is_used_on_the_current_stream", 2000),
        ("record_stream_is_there", None),
        ("the_host_waits_before_it_gives_back", None),
        ("the_next_owner_of_memory_waits", None),
        ("two_halves_of_one_tensor", 1000),
        ("two_columns_of_one_tensor", 200),
        ("a_backward_on_a_side_stream", 20),
        ("the_host_reads_in_time", 1000),
        ("the_host_writes_in_time", 2000),
        ("one_batch_for_two_devices", 2000),
    ],
)
def test_nothing_is_found_in_the_right_version(
    case: str, value: float | None, outcomes: dict[str, Any]
) -> None:
    assert outcomes[case] == {"value": value, "findings": []}


def test_a_race_is_told_with_both_ends(outcomes: dict[str, Any]) -> None:
    finding, *_ = outcomes["a_wait_is_missing"]["findings"]
    assert re.fullmatch(
        r"race: read by mul on cuda:0 stream \d+ at "
        rf"\S*cases_of_races.py:{line_with('# the read')} < .*; "
        r"nothing orders it after the write by add_ on cuda:0 default stream "
        rf"at \S*cases_of_races.py:{line_with('# the write')} < .*",
        finding,
    )


def test_an_access_of_the_host_is_told_with_both_ends(
    outcomes: dict[str, Any],
) -> None:
    (finding,) = outcomes["the_host_reads_too_early"]["findings"]
    assert re.fullmatch(
        r"race: the host uses pinned memory at "
        rf"\S*cases_of_races.py:{line_with('# the host reads')} < .*; "
        r"it has not waited for the copy to the host on cuda:0 default "
        r"stream at "
        rf"\S*cases_of_races.py:{line_with('# the copy to the host')} < .*",
        finding,
    )


@pytest.mark.parametrize(
    ("case", "waits"),
    [
        ("the_host_waits_for_pageable_memory", 1),
        ("the_host_does_not_wait_for_pinned_memory", 0),
        ("the_host_waits_for_an_item", 1),
        ("the_host_waits_for_a_shape", 1),
    ],
)
def test_waits_of_the_host_are_counted(
    case: str, waits: int, outcomes: dict[str, Any]
) -> None:
    assert outcomes[case] == {"value": waits, "findings": []}
