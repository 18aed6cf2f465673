"""Tests of dpkit.runs.ranks.works: who waits for an operation, and when."""

import torch
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
