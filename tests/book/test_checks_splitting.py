"""The checks of the exercises on splitting tell wrong answers from right."""

import pytest

from dpbook.common.checks import failure


def named(name, answer):
    answer.__name__ = name
    return answer


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
