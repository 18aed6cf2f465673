"""Cutting a row of costs: the best of all cuts."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpkit.schedules.balance import balance


def largest(costs, lengths):
    parts, start = [], 0
    for length in lengths:
        parts.append(sum(costs[start : start + length]))
        start += length
    return max(parts)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=9), st.data())
def test_no_other_cut_is_better(costs, data):
    k = data.draw(st.integers(1, len(costs)))
    lengths = balance(costs, k)
    assert sum(lengths) == len(costs)
    assert len(lengths) == k
    assert min(lengths) >= 1
    least = min(
        largest(costs, [b - a for a, b in zip((0, *c), (*c, len(costs)))])
        for c in combinations(range(1, len(costs)), k - 1)
    )
    assert largest(costs, lengths) == least


@pytest.mark.parametrize(
    ("costs", "parts", "words"),
    [
        ([1, 2], 3, r"costs: 2, parts: 3"),
        ([1, 2], 0, r"costs: 2, parts: 0"),
        ([], 1, r"costs: 0, parts: 1"),
        ([1, -2], 1, r"negative \(costs: \[1, -2\]\)"),
        ([1, float("nan"), 2], 2, r"not finite \(costs: \[1, nan, 2\]\)"),
        ([1, float("inf"), 2], 2, r"not finite \(costs: \[1, inf, 2\]\)"),
    ],
)
def test_what_cannot_be_cut(costs, parts, words):
    with pytest.raises(ValueError, match=words):
        balance(costs, parts)
