"""The record of Llama's memory by two accounts."""

import json

import pytest
from recorders.llama_memory import FIRST_STEP, RECORD, explained, peaks

from tests.repository import ROOT


def test_the_difference_is_explained_to_the_byte():
    record = ROOT / "book" / "_data" / f"{RECORD}.json"
    found = json.loads(record.read_text())
    assert found["explained"] == explained()
    (_, simulated), (_, tracked) = found["simulated"], found["tracked"]
    difference = tracked - simulated
    assert difference == sum(part["bytes"] for part in explained())
    assert difference == found["difference_of_second_step"]


def test_a_step_with_all_its_state_needs_more_than_the_first():
    record = ROOT / "book" / "_data" / f"{RECORD}.json"
    first, second = json.loads(record.read_text())["simulated"]
    assert second - first == pytest.approx(8 * 8.03e9 / 64, rel=0.01)


def test_the_tracker_counts_whole_tensors_in_the_first_step():
    record = ROOT / "book" / "_data" / f"{RECORD}.json"
    found = json.loads(record.read_text())
    assert found["first_step"] == FIRST_STEP
    whole = found["tracked"][0] - found["tracked"][1]
    assert 2 < whole / (4 * 8.03e9) < 3


def test_peaks_are_read_from_what_a_program_prints():
    says = "print('before'); print('{\"peaks\": [1, 2]}')"
    assert peaks(["-c", says]) == [1, 2]
