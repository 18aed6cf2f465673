"""The door of ranks tells the way of a collective by functions that run."""

import re
import sys

import torch
import torch.distributed as dist

import dpkit
import dpkit.runs.ranks
from dpkit.runs.ranks.one_rank import LEAVERS
from dpkit.runs.ranks.sending import SENDERS


def called(names):
    """Return which of the named functions an allreduce calls, in order."""
    found = []

    def note(frame, event, arg):
        name = frame.f_code.co_qualname
        if event == "call" and name in names and name not in found:
            found.append(name)

    x = torch.ones(2, device="sim")
    dist.barrier()
    sys.setprofile(note)
    try:
        dist.all_reduce(x)
    finally:
        sys.setprofile(None)
    assert x.tolist() == [2, 2]
    return found


def test_the_way_of_an_allreduce_is_that_of_the_docstring():
    _, way = dpkit.runs.ranks.__doc__.split(
        "The way of one ``dist.all_reduce(x)``"
    )
    steps, _ = way.split("With ``alike=True``")
    names = re.findall(r"``([A-Z]\w+\.\w+|send_\w+)``", steps)
    names = list(dict.fromkeys(names))
    assert len(names) == 11
    first, last = dpkit.sim.launch(called, 2, names)
    # One of the two has come last, and sends.
    assert names in (first, last)
    sender = {"send_allreduce", "Clock.copy"}
    assert {*first} ^ {*last} == sender


def test_each_collective_is_left_on_one_rank_too():
    """What ranks send, and what stands for it where they are alike."""
    assert {*SENDERS} - {*LEAVERS} == {"message"}  # which is refused
    assert {*LEAVERS} <= {*SENDERS}
