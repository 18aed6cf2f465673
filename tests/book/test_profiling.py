"""A real run becomes a timeline, and says nothing on the side."""

import os

import pytest
import torch

from dpbook.limits.profiling import profiled


def test_a_run_on_the_cpu(capfd):
    x = torch.ones(300, 300)
    timeline = profiled(lambda: [x @ x for _ in range(3)])
    assert [s.name for s in timeline.spans] == ["aten::matmul"] * 3
    assert timeline.label == "measured (CPU)"
    assert 0 < timeline.makespan < 60
    assert capfd.readouterr().err == ""


def test_errors_arrive_and_are_heard_of_again(capfd):
    with pytest.raises(RuntimeError, match="size"):
        profiled(lambda: torch.ones(2) + torch.ones(3))
    os.write(2, b"heard")
    assert capfd.readouterr().err == "heard"
