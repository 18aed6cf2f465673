"""What held a device's memory is told when it is out, if anything did."""

from contextlib import ExitStack

import pytest
import torch

from dpkit import sim
from dpkit.runs.torchrun.held import HeldMemory

sim.register()


def notes_when_it_is_out():
    with ExitStack() as stack:
        HeldMemory().begin(stack)
        with pytest.raises(torch.OutOfMemoryError) as out:
            torch.empty(1 << 50, dtype=torch.uint8, device="sim:1")
    return getattr(out.value, "__notes__", [])


def test_what_holds_the_memory_is_told_where_there_is_any():
    assert notes_when_it_is_out() == []
    x = torch.ones(1 << 18, device="sim:1")
    total, of_line = notes_when_it_is_out()
    assert total == "held: 1 MiB of other"
    assert of_line == "held since less than 1 MiB each: 1 MiB"
    assert x.device.index == 1
