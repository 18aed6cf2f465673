"""When buckets have been reduced, against what can be worked by hand."""

import pytest

from dpbook.formulas.overlap import bucket_ends, step_seconds


def test_a_bucket_waits_for_its_gradients_and_for_the_one_before():
    assert bucket_ends([2, 4, 20], [3, 5, 1]) == [5, 10, 21]
    assert bucket_ends([], []) == []
    assert bucket_ends([0, 0, 0], [1, 2, 3]) == [1, 3, 6]


def test_a_step_is_as_long_as_the_longer_of_backward_and_the_last_bucket():
    assert step_seconds(1, 10, [2, 4], [1, 1], update=0.5) == 11.5
    assert step_seconds(1, 10, [2, 10], [1, 1], update=0.5) == 12.5
    assert step_seconds(1, 10, [2, 10], [9, 9]) == 1 + 20
    assert step_seconds(1, 10, [2, 10], [9, 9], overlap=False) == 29
    assert step_seconds(1, 10, [], []) == 11


def test_as_many_times_as_costs():
    with pytest.raises(ValueError, match=r"\(times: 2, costs: 1\)"):
        bucket_ends([1, 2], [1])
