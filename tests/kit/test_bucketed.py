"""Data parallelism in buckets, in one process: the numbers and the times."""

import contextlib
from contextlib import contextmanager
from functools import partial
from itertools import pairwise

import pytest
import torch
from torch import nn

import dpkit
from dpkit.data_parallel import BucketedDataParallel
from dpkit.sim.hardware import ACCELERATORS, Host, Link
from dpkit.streams import copy_streams, record_event

LOSS = nn.MSELoss()


def network():
    torch.manual_seed(0)
    sizes = [7, 11, 5, 13, 3]
    layers = [nn.Linear(a, b) for a, b in pairwise(sizes)]
    mixed = [layer for pair in zip(layers, [nn.Tanh()] * 4) for layer in pair]
    return nn.Sequential(*mixed).double()


def batches(count, rows=17):
    generator = torch.Generator().manual_seed(1)
    make = torch.rand
    return [
        (
            make(rows, 7, dtype=torch.double, generator=generator),
            make(rows, 3, dtype=torch.double, generator=generator),
        )
        for _ in range(count)
    ]


def sgd(module):
    return torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)


def trained(steps):
    """Return the parameters after some steps on one device."""
    net = network()
    optimizer = sgd(net)
    for X, y in steps:
        optimizer.zero_grad()
        LOSS(net(X), y).backward()
        optimizer.step()
    return list(net.parameters())


def distance(replica, params):
    return max(
        float((p.detach().cpu() - q.detach()).abs().max())
        for p, q in zip(replica.parameters(), params, strict=True)
    )


# A bucket for each gradient, some, and one for all.
@pytest.mark.parametrize(
    ("k", "megabytes", "overlap", "set_to_none"),
    [
        (1, 1e-9, True, True),
        (2, 1e-9, False, False),
        (3, 4e-4, True, False),
        (5, 4e-4, False, True),
        (3, 25.0, True, True),
        (4, float("inf"), True, False),
    ],
)
def test_steps_equal_those_of_one_device(
    get_ranks, k, megabytes, overlap, set_to_none
):
    """With momentum, and a batch that k does not divide."""
    steps = batches(3)
    parallel = BucketedDataParallel(
        network(), get_ranks(k), megabytes, overlap
    )
    optimizers = [sgd(replica) for replica in parallel.replicas]
    for X, y in steps:
        for optimizer in optimizers:
            optimizer.zero_grad(set_to_none)
        found = parallel.forward_backward(X, y, LOSS)
        for optimizer in optimizers:
            optimizer.step()
    assert len(parallel.replicas) == k
    expected = trained(steps)
    for replica in parallel.replicas:
        assert distance(replica, expected) < 1e-10
    right = LOSS(_with(trained(steps[:-1]))(steps[-1][0]), steps[-1][1])
    assert found.item() == pytest.approx(right.item(), abs=1e-12)
    assert found.device == parallel.devices[0]


def _with(params):
    net = network()
    with torch.no_grad():
        for mine, p in zip(net.parameters(), params, strict=True):
            mine.copy_(p)
    return net


def test_gradients_add_up_without_sync(get_ranks):
    steps = batches(3)
    parallel = BucketedDataParallel(network(), get_ranks(3), 4e-4)
    with parallel.no_sync():
        for X, y in steps[:2]:
            parallel.forward_backward(X, y, LOSS)
    grads = [[p.grad.cpu() for p in r.parameters()] for r in parallel.replicas]
    assert not torch.equal(grads[0][0], grads[1][0])
    parallel.forward_backward(*steps[2], LOSS)
    net = network()
    for X, y in steps:
        LOSS(net(X), y).backward()
    for replica in parallel.replicas:
        for p, q in zip(replica.parameters(), net.parameters(), strict=True):
            assert torch.allclose(p.grad.cpu(), q.grad, atol=1e-12)


class Branches(nn.Module):
    """One branch is for positive examples; one is never taken."""

    def __init__(self):
        super().__init__()
        self.always, self.some, self.never = (nn.Linear(1, 1) for _ in "123")

    def forward(self, x):
        out = self.always(x)
        return self.some(out) if (x > 0).all() else out


def test_parameters_that_only_some_replicas_use(get_ranks):
    torch.manual_seed(2)
    net = Branches()
    parallel = BucketedDataParallel(net, get_ranks(2))
    X, y = torch.tensor([[1.0], [-1.0]]), torch.zeros(2, 1)
    parallel.forward_backward(X, y, LOSS)
    (LOSS(net(X[:1]), y[:1]) / 2 + LOSS(net(X[1:]), y[1:]) / 2).backward()
    for replica in parallel.replicas:
        assert replica.never.weight.grad is None
        for name in ("always", "some"):
            found = getattr(replica, name).weight.grad.cpu()
            assert torch.allclose(found, getattr(net, name).weight.grad)


def test_a_step_after_one_that_broke_off(get_ranks):
    ((X, y),) = batches(1)
    parallel = BucketedDataParallel(network(), get_ranks(2), 1e-9)

    def broken(outputs, labels):
        outputs.register_hook(lambda _: 1 / 0)
        return LOSS(outputs, labels)

    with pytest.raises(ZeroDivisionError):
        parallel.forward_backward(X, y, broken)
    for replica in parallel.replicas:
        replica.zero_grad()
    parallel.forward_backward(X, y, LOSS)
    net = network()
    LOSS(net(X), y).backward()
    grad = parallel.replicas[1][0].weight.grad.cpu()
    assert torch.allclose(grad, net[0].weight.grad, atol=1e-12)


def test_what_is_refused(get_ranks):
    devices = get_ranks(3)
    with pytest.raises(ValueError, match=r"\(devices: 0\)"):
        BucketedDataParallel(network(), [])
    with pytest.raises(ValueError, match=r"no parameter.*\(parameters: 0\)"):
        BucketedDataParallel(nn.Tanh(), devices)
    with pytest.raises(ValueError, match=r"bucket_megabytes: 0\b"):
        BucketedDataParallel(network(), devices, 0)
    parallel = BucketedDataParallel(network(), devices)
    ((X, y),) = batches(1, rows=2)
    with pytest.raises(ValueError, match=r"\(examples: 2, devices: 3\)"):
        parallel.forward_backward(X, y, LOSS)


def test_one_bucket_for_all(get_ranks):
    """Of 6 MiB, while the first bucket else closes at one."""
    net = wide(512, device="cpu")
    parallel = BucketedDataParallel(net, get_ranks(1), float("inf"))
    assert [len(b.params) for b in parallel.buckets[0].buckets] == [LAYERS]


# -- times, on the simulated clock

WIDTH, LAYERS, ROWS = 2048, 6, 4096
FREE = Host("free", *[0.0] * 4, *[1e12] * 3)


def wide(width=WIDTH, device="meta"):
    """Return a network that has values only where they are needed."""
    with torch.device(device):
        layers = [nn.Linear(width, width, bias=False) for _ in range(LAYERS)]
    return nn.Sequential(*layers)


def step(link, megabytes, overlap, count=4, **settings):
    """Return the timeline and the seconds of the second step."""
    given = {"backing": "meta", "hosts": "per_device", "host": FREE}
    with dpkit.sim.machine(**given, link=link, **settings):
        devices = dpkit.devices(count, "sim")
        parallel = BucketedDataParallel(wide(), devices, megabytes, overlap)
        X = torch.empty(ROWS, WIDTH, device=devices[0])
        for _ in range(2):
            for replica in parallel.replicas:
                replica.zero_grad(set_to_none=False)
            dpkit.synchronize(devices)
            with dpkit.sim.trace() as timeline, dpkit.Timer(devices) as timer:
                parallel.forward_backward(X, X, LOSS)
        return timeline, timer.seconds


def products(timeline, device):
    """Return when each product of a device ended; backward has two each."""
    return [
        s.end
        for s in timeline.spans
        if s.device == f"sim:{device}" and s.name == "mm"
    ]


@pytest.mark.parametrize(
    ("rate", "slow"), [(2e9, {2: 1.5}), (10e9, {}), (200e9, {})]
)
def test_the_clock_and_the_recurrence(rate, slow):
    """A bucket for each layer; a ring of four; one device may be slow."""
    link = Link(
        "switch",
        bytes_per_second=rate,
        achieved=1.0,
        latency_seconds=20e-6,
        peer_to_peer=True,
    )
    timeline, _ = step(link, 1e-9, overlap=True, slow=slow)
    # Forward has a product for each layer, backward two, but one for the
    # first, whose input needs no gradient. That of the weights comes last.
    ends = max((products(timeline, d) for d in range(4)), key=max)
    ready = [*ends[LAYERS + 1 :: 2], ends[-1]]
    assert len(ends) == 3 * LAYERS - 1
    assert len(ready) == LAYERS
    n, v100 = 4 * WIDTH**2, ACCELERATORS["v100"]
    moved = n / (v100.bytes_per_second * v100.achieved_bytes)
    moved *= max(slow.values(), default=1)
    cost = 6 * 20e-6 + 6 / 4 * n / rate + 3 / 4 * 3 * moved
    cost += 2 * moved  # the division of the sum
    reduced = 0.0
    for full in ready:
        reduced = max(reduced, full) + cost
    found = max(ends[-1], reduced)
    last = max(s.end for s in timeline.spans if s.name == "div_")
    assert last == pytest.approx(found, rel=0.02)


def test_overlap_is_worth_it():
    link = Link(
        "switch",
        bytes_per_second=20e9,
        achieved=1.0,
        latency_seconds=20e-6,
        peer_to_peer=True,
    )
    _, together = step(link, 1e-9, overlap=True)
    _, after = step(link, 1e-9, overlap=False)
    assert together < 0.75 * after


@pytest.mark.parametrize("overlap", [True, False])
def test_sending_begins_before_backward_ends(overlap):
    link = Link(
        "switch",
        bytes_per_second=10e9,
        achieved=1.0,
        latency_seconds=20e-6,
        peer_to_peer=True,
    )
    timeline, _ = step(link, 1e-9, overlap)
    sums = [
        s.start
        for s in timeline.spans
        if s.name == "add_" and s.num_bytes < 4 * WIDTH**2  # parts of buckets
    ]
    assert len(sums) == 4 * 3 * LAYERS
    ends = [max(products(timeline, d)) for d in range(4)]
    assert (min(sums) < min(ends)) == overlap


def test_ranks_that_share_a_device_wait_for_the_latest():
    """Backward fills the last rank first; its event is not the one."""
    zero, one = dpkit.devices(2, "sim")
    parallel = BucketedDataParallel(network(), [zero, zero, one], 1e-9)
    waited, full = [], []
    plain = parallel._note_full

    @contextmanager
    def watched(events):
        waited.append(events[zero].mark)
        yield

    def note_full(rank, bucket):
        if rank == 0:
            full.append(record_event(zero).mark)
        plain(rank, bucket)

    for rank, buckets in enumerate(parallel.buckets):
        buckets._on_full = partial(note_full, rank)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dpkit.data_parallel.bucketed.on_side_streams", watched)
        parallel.forward_backward(*batches(1)[0], LOSS)
    assert len(waited) == len(full) == 8
    assert all(a >= b for a, b in zip(waited, full, strict=True))


def test_the_devices_wait_for_what_is_reduced():
    """Also when backward breaks off with reductions on their way."""
    link = Link(
        "switch",
        bytes_per_second=1e9,
        achieved=1.0,
        latency_seconds=20e-6,
        peer_to_peer=True,
    )
    settings = {"backing": "meta", "hosts": "per_device", "link": link}
    for broken in (False, True):
        with dpkit.sim.machine(**settings):
            devices = dpkit.devices(2, "sim")
            parallel = BucketedDataParallel(wide(), devices, 1e-9)
            X = torch.empty(64, WIDTH, device=devices[0])
            if broken:
                first = parallel.replicas[0][0].weight
                first.register_hook(lambda _: 1 / 0)
            with contextlib.suppress(ZeroDivisionError):
                parallel.forward_backward(X, X, LOSS)
            done = [record_event(d).mark for d in devices]
            streams = [copy_streams(d).side for d in devices]
            for end, stream in zip(done, streams, strict=True):
                assert end >= stream.record_event().mark
            del parallel, X


def test_on_a_cpu_that_is_simulated_overlap_costs_nothing():
    """The host waits for what it asked a stream for, not for all streams."""
    link = Link(
        "switch",
        bytes_per_second=1e9,
        achieved=1.0,
        latency_seconds=20e-6,
        peer_to_peer=True,
    )
    told = {"accelerator": "laptop-cpu", "count": 2}
    _, together = step(link, 1e-9, overlap=True, **told)
    _, after = step(link, 1e-9, overlap=False, **told)
    assert together < after
