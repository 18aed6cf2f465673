"""Tests of dpkit.runs.ranks.works: who waits for an operation, and when."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import dpkit


def seconds_of(spans):
    return sum(span.end - span.start for span in spans)


def overlapping(timeline, device):
    """Return the seconds in which a device computes while it sends."""
    mine = [span for span in timeline.spans if span.device == device]
    sent = [s for s in mine if s.name.startswith("copy to")]
    computed = [s for s in mine if s.stream == "compute"]
    both = (
        min(a.end, b.end) - max(a.start, b.start)
        for a in sent
        for b in computed
    )
    return sum(max(0.0, seconds) for seconds in both)


def train(num_steps=3):
    """Take steps of dense layers by PyTorch's engine, a bucket for each."""
    layers = [nn.Linear(1024, 1024, device="sim") for _ in range(12)]
    parallel = DistributedDataParallel(nn.Sequential(*layers), bucket_cap_mb=1)
    for _ in range(num_steps):
        parallel(torch.ones(512, 1024, device="sim")).sum().backward()


def test_pytorch_s_reducer_sends_beside_backward():
    """Its future is done at once; the stream waits when backward ends.

    Nothing is beside the parameters that it sends when it begins, nor beside
    the last bucket. If the stream waited at once, 3 % would be beside work.
    """
    with (
        dpkit.sim.machine(hosts="per_device", backing="meta"),
        dpkit.sim.trace() as timeline,
    ):
        dpkit.sim.launch(train, 4)
    spans = [s for s in timeline.spans if s.device == "sim:0"]
    sent = seconds_of(s for s in spans if s.name.startswith("copy to"))
    assert overlapping(timeline, "sim:0") > 0.4 * sent > 0


def ask_for_a_future(param):
    dist.all_reduce(param.grad, async_op=True).get_future()


def backward_with_a_hook():
    """Return the milliseconds of a backward whose sums nobody reads."""
    begin, end = (torch.sim.Event(enable_timing=True) for _ in range(2))
    weights = torch.ones(512, 512, device="sim", requires_grad=True)
    weights.register_post_accumulate_grad_hook(ask_for_a_future)
    loss = (torch.ones(4, 512, device="sim") @ weights).sum()
    begin.record()
    loss.backward()
    end.record()
    torch.sim.synchronize()
    return begin.elapsed_time(end)


def test_sums_that_nobody_has_read_are_waited_for_after_backward():
    with dpkit.sim.machine(accelerator="v100", link="ethernet10"):
        times = dpkit.sim.launch(backward_with_a_hook, 2)
    message = 512 * 512 * 4 / 1.25e9 * 1e3  # a ring of two sends all once
    assert all(milliseconds > message for milliseconds in times)
