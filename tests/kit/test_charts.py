"""Charts: what is written can be read, and what cannot be is refused."""

import pytest

from dpkit.schedules.actions import parse
from dpkit.schedules.charts import chart, check_chart
from dpkit.schedules.named import NAMED, interleaved


@pytest.mark.parametrize("name", NAMED)
@pytest.mark.parametrize(("p", "m"), [(1, 1), (2, 3), (4, 12)])
def test_a_chart_is_read_as_it_was_written(name, p, m):
    schedule = NAMED[name](p, m)
    assert check_chart(chart(schedule)) == schedule


def test_a_chart_of_several_stages_a_device():
    schedule = interleaved(2, 4, chunks_per_device=2)
    assert check_chart(chart(schedule)) == schedule


def test_a_backward_before_its_successors():
    """Stage 0 starts B0 while the last stage only starts its own."""
    wrong = """
        0F0 0F1 0F2 0B0 0B1 0B2
        .   1F0 1F1 1B0 1F2 1B1 1B2
    """
    with pytest.raises(
        ValueError, match=r"0B0 in tick 3 needs 1B0, .* tick 3"
    ):
        check_chart(wrong)


def test_a_chart_with_an_action_twice():
    with pytest.raises(ValueError, match="0F0 is there 2 times"):
        check_chart("0F0 0F0 0B0")


def test_ticks_count_idle_ones():
    assert chart(parse("0F0 0B0\n1F0 1B0")) == (
        "0F0 .   .   0B0\n.   1F0 1B0 ."
    )
