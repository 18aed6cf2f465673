"""Tests of the DistributedDataParallel by hand, beside PyTorch's.

Each check below runs on all ranks, one after another in the same processes;
the test of its name judges what the ranks returned.
"""

import copy
import pickle
import traceback
from contextlib import contextmanager, suppress
from itertools import zip_longest

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import dpkit
from dpkit.data_parallel import DistributedDataParallel
from dpkit.processes import launch, rank_device

TINY = 1e-9  # megabytes: a bucket for each gradient
SIZES = [TINY, 1e-3, 25.0]
ROWS, STEPS, LR = 12, 3, 0.1  # 12 rows: as many for each of 2 or 3 ranks
CHECKS = {}


def check(fn):
    CHECKS[fn.__name__] = fn
    return fn


def run_checks():
    """Run all checks on this rank; an exception is told as its text."""
    results = {}
    for name, fn in CHECKS.items():
        try:
            results[name] = fn()
        except Exception:
            results[name] = traceback.format_exc()
        dist.barrier()
    return results


@pytest.fixture(
    scope="module",
    params=[
        pytest.param((3, "gloo"), marks=pytest.mark.slow),
        pytest.param((2, "nccl"), marks=pytest.mark.cuda),
    ],
    ids=lambda p: f"{p[0]} {p[1]}",
)
def ranks(request, need_gpus):
    """What each rank returned, by check."""
    world_size, backend = request.param
    if backend == "nccl":
        need_gpus(world_size)
    found = launch(
        run_checks, world_size, backend=backend, timeout_seconds=150
    )
    assert len(found) == world_size > 1
    return found


def batches(rows=ROWS, steps=STEPS):
    generator = torch.Generator().manual_seed(rows)
    for _ in range(steps):
        X = torch.randn(rows, 1, 6, 6, generator=generator).double()
        yield X, torch.randint(5, (rows,), generator=generator)


def shard(x):
    """Return this rank's rows, on its device."""
    pieces = x.tensor_split(dist.get_world_size())
    return pieces[dist.get_rank()].to(rank_device())


def here(module):
    return module.to(rank_device())


def convnet(norm=False):
    torch.manual_seed(5)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, bias=not norm),
        nn.BatchNorm2d(4) if norm else nn.Identity(),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64, 6),
        nn.Tanh(),
        nn.Linear(6, 5),
    ).double()


def step(net, optimizer, X, y, keep=False):
    optimizer.zero_grad(set_to_none=not keep)
    F.cross_entropy(net(X), y).backward()
    optimizer.step()


def train(net, place, **shape):
    """Take steps with momentum, on the rows that ``place`` gives."""
    optimizer = torch.optim.SGD(net.parameters(), LR, momentum=0.9)
    for i, (X, y) in enumerate(batches(**shape)):
        step(net, optimizer, place(X), place(y), keep=i % 2 == 1)


def values(tensors):
    """Return copies, for nothing that is returned may change any more."""
    return [None if t is None else t.detach().cpu().clone() for t in tensors]


def grads(module):
    return values(p.grad for p in module.parameters())


def state(module):
    return values(module.state_dict().values())


def difference(these, those):
    """Return the largest difference; infinite where one alone is None."""
    largest = 0.0
    for one, other in zip_longest(these, those):
        if (one is None) != (other is None):
            return float("inf")
        if one is not None and one.numel():
            wide = (t.to(torch.complex128) for t in (one, other))
            gap = (next(wide) - next(wide)).abs().max()
            largest = max(largest, float(gap.nan_to_num(float("inf"))))
    return largest


def both(make, megabytes=1e-3, **options):
    """Return two wrappers of one module: ours, and PyTorch's."""
    ours = DistributedDataParallel(here(make()), megabytes)
    theirs = nn.parallel.DistributedDataParallel(here(make()), **options)
    return ours, theirs


def gaps(ours, theirs):
    """Return how far gradients, and parameters and buffers, are apart."""
    one, other = ours.module, theirs.module
    return (
        difference(grads(one), grads(other)),
        difference(state(one), state(other)),
    )


@contextmanager
def watched():
    """Note the messages that are sent, and their bytes."""
    calls = []
    originals = {name: getattr(dist, name) for name in MESSAGES}

    def noted(name):
        def call(tensor, *args, **kwargs):
            calls.append((name, tensor.nbytes, kwargs.get("async_op", False)))
            return originals[name](tensor, *args, **kwargs)

        return call

    for name in MESSAGES:
        setattr(dist, name, noted(name))
    try:
        yield calls
    finally:
        for name, original in originals.items():
            setattr(dist, name, original)


MESSAGES = ("all_reduce", "broadcast")


# Equal to one device, equal to PyTorch.


@check
def one_device():
    trained = {}
    for megabytes in SIZES:
        net = DistributedDataParallel(here(convnet()), megabytes)
        train(net, shard)
        trained[megabytes] = state(net.module)
    return trained


def test_one_device(outcomes):
    alone = convnet()
    train(alone, lambda x: x)
    assert difference(state(alone), state(convnet())) > 1e-2  # it did learn
    for trained in outcomes:
        for megabytes in SIZES:
            assert difference(trained[megabytes], state(alone)) < 1e-10


@check
def ragged_batches():
    """Seven rows: the ranks have shards of different sizes."""
    ours, theirs = both(convnet)
    for X, y in batches(7, 1):
        for net in (ours, theirs):
            F.cross_entropy(net(shard(X)), shard(y)).backward()
    return grads(ours.module), grads(theirs.module)


def test_ragged_batches(outcomes):
    """The mean of the ranks' means, as PyTorch's; not that of examples."""
    ((X, y),) = batches(7, 1)
    alone, whole = convnet(), convnet()
    pieces = zip(X.tensor_split(len(outcomes)), y.tensor_split(len(outcomes)))
    for X_shard, y_shard in pieces:
        loss = F.cross_entropy(alone(X_shard), y_shard)
        (loss / len(outcomes)).backward()
    F.cross_entropy(whole(X), y).backward()
    for ours, theirs in outcomes:
        assert difference(ours, theirs) < 1e-10
        assert difference(ours, grads(alone)) < 1e-10
        assert difference(ours, grads(whole)) > 1e-4


@check
def step_by_step():
    """With batch norm: gradients, parameters and running statistics."""
    found = []
    for megabytes in SIZES:
        ours, theirs = both(lambda: convnet(norm=True), megabytes)
        optimizers = [
            torch.optim.SGD(net.parameters(), LR, momentum=0.9)
            for net in (ours, theirs)
        ]
        for i, (X, y) in enumerate(batches()):
            for net, optimizer in zip((ours, theirs), optimizers):
                step(net, optimizer, shard(X), shard(y), keep=i % 2 == 1)
            found.append(gaps(ours, theirs))
    return found, state(ours.module)


def test_step_by_step(outcomes):
    for found, _ in outcomes:
        assert len(found) == len(SIZES) * STEPS
        assert max(map(max, found)) < 1e-10
    # After its own forward each rank has statistics of its own.
    assert difference(outcomes[0][1], outcomes[1][1]) > 1e-4


@check
def several_dtypes():
    def make():
        torch.manual_seed(2)
        dtypes = torch.float, torch.double, torch.bfloat16, torch.complex64
        return Mixed([torch.randn(7, dtype=dtype) for dtype in dtypes * 2])

    ours, theirs = both(make, 25.0)
    found = []
    for scale in (1, 2):
        for net in (ours, theirs):
            net.zero_grad()
            net(float(scale * (dist.get_rank() + 1))).backward()
        found.append((grads(ours.module), grads(theirs.module)))
    buckets = ours.buckets.buckets
    return found, sorted(str(bucket.flat.dtype) for bucket in buckets)


class Mixed(nn.Module):
    """Parameters of several dtypes."""

    def __init__(self, tensors):
        super().__init__()
        self.params = nn.ParameterList(map(nn.Parameter, tensors))

    def forward(self, scale):
        powers = [(p * scale).abs().square().sum() for p in self.params]
        return sum(power.double() for power in powers)


def test_several_dtypes(outcomes):
    kinds = "bfloat16 complex64 float32 float64".split()
    for found, dtypes in outcomes:
        for ours, theirs in found:
            torch.testing.assert_close(ours, theirs)
        assert dtypes == [f"torch.{kind}" for kind in kinds]


# What is sent, and when.


@check
def messages():
    """Three steps, each with what it sends and how many buckets it has."""
    found = []
    for megabytes in SIZES:
        net = DistributedDataParallel(here(convnet(norm=True)), megabytes)
        for X, y in batches(steps=3):
            with watched() as calls:
                F.cross_entropy(net(shard(X)), shard(y)).backward()
            sizes = [b.flat.nbytes for b in net.buckets.buckets]
            found.append((calls, sizes))
    return found


def test_messages(outcomes):
    elements = sum(p.numel() for p in convnet(norm=True).parameters())
    for found in outcomes:
        assert found == outcomes[0]
        for i, (calls, sizes) in enumerate(found):
            buffers = [("broadcast", 64, False), ("broadcast", 8, False)]
            assert sorted(calls[:2], reverse=True) == sorted(
                buffers, reverse=True
            )
            # In the first step the order, a number for each parameter.
            order = [("broadcast", 7 * 8, False)] * (i % 3 == 0)
            reduced = calls[2 : len(calls) - len(order)]
            assert calls[len(calls) - len(order) :] == order
            # A gradient has 8 bytes an element, and a flag.
            total = sum(num_bytes for _, num_bytes, _ in reduced)
            assert total == 8 * (elements + 7) == sum(sizes)
            if i % 3:
                assert reduced == [("all_reduce", n, True) for n in sizes]
        counts = [len(sizes) for _, sizes in found[::3]]
        assert counts[0] == 7 > counts[1] > counts[2] == 1


@check
def overlap():
    """In two steps: gradients made, buckets sent, and waits."""
    net = DistributedDataParallel(here(convnet()), TINY)
    events = []
    for p in net.parameters():
        p.register_post_accumulate_grad_hook(
            lambda p: events.append(("made", p.numel()))
        )
    original = dist.all_reduce

    def all_reduce(tensor, **kwargs):
        num_elements = tensor.numel() - 1  # less the flag
        events.append(("sent", num_elements))
        return Work(original(tensor, **kwargs), num_elements, events)

    dist.all_reduce = all_reduce
    try:
        for X, y in batches(steps=2):
            F.cross_entropy(net(shard(X)), shard(y)).backward()
    finally:
        dist.all_reduce = original
    return events


class Work:
    """Work on its way that notes who waits for it."""

    def __init__(self, work, num_elements, events):
        self.work, self.num_elements = work, num_elements
        self.events = events

    def wait(self):
        self.events.append(("wait", self.num_elements))
        self.work.wait()


def test_overlap(outcomes):
    for events in outcomes:
        assert len(events) == 2 * (6 + 6 + 6)
        first, second = events[:18], events[18:]
        # From the last parameter to the first; nearly what backward does.
        sizes = [p.numel() for p in convnet().parameters()][::-1]
        assert [n for kind, n in first if kind == "sent"] == sizes
        assert first.index(("sent", sizes[3])) < first.index(("made", 36))
        # Then as backward does it: each is sent as soon as it is made, and
        # nothing is waited for until backward ends. The hook of the test
        # comes after that of the buckets.
        made = [n for kind, n in second if kind == "made"]
        assert sorted(made) == sorted(sizes)
        while_backward = [(kind, n) for n in made for kind in ("sent", "made")]
        assert second == [*while_backward, *(("wait", n) for n in made)]


@check
def equal_sequences():
    """Ranks whose backward makes gradients in different orders."""
    torch.manual_seed(1)
    net = DistributedDataParallel(here(Crossed()), TINY)
    found = []
    for i in range(3):
        net.zero_grad()
        generator = torch.Generator().manual_seed(10 * i + dist.get_rank())
        X = torch.randn(4, 5, generator=generator).double().to(rank_device())
        net(X, dist.get_rank() % 2).sum().backward()
        found.append(grads(net.module))
    names = {p: name for name, p in net.module.named_parameters()}
    layout = [[names[p] for p in b.params] for b in net.buckets.buckets]
    return found, layout


class Crossed(nn.Module):
    """Two layers, used in one order or the other."""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(5, 5, dtype=torch.double)
        self.b = nn.Linear(5, 5, dtype=torch.double)

    def forward(self, X, swap):
        first, second = (self.b, self.a) if swap else (self.a, self.b)
        return second(first(X).tanh())


def test_equal_sequences(outcomes):
    torch.manual_seed(1)
    alone = Crossed()
    for i in range(3):
        alone.zero_grad()
        for rank in range(len(outcomes)):
            generator = torch.Generator().manual_seed(10 * i + rank)
            X = torch.randn(4, 5, generator=generator).double()
            (alone(X, rank % 2).sum() / len(outcomes)).backward()
        for found, layout in outcomes:
            assert layout == outcomes[0][1]
            assert [name[0][0] for name in layout] == ["b", "b", "a", "a"]
            assert difference(found[i], grads(alone)) < 1e-12


# Gradients that add up.


@check
def accumulation():
    """Two backwards apart, then one together; and once more."""
    found, local = [], []
    ours, theirs = both(lambda: convnet(norm=True))
    for keep in (False, True, False):
        parts = list(batches(steps=3))
        for net in (ours, theirs):
            net.zero_grad(set_to_none=not keep)
            with net.no_sync(), watched() as calls:
                for X, y in parts[:2]:
                    F.cross_entropy(net(shard(X)), shard(y)).backward()
            assert net is theirs or calls == []
            local.append(grads(net.module))
            X, y = parts[2]
            F.cross_entropy(net(shard(X)), shard(y)).backward()
        found.append(difference(*map(grads, (ours.module, theirs.module))))
        found.append(difference(*local[-2:]))
    return found, local[0], grads(ours.module)


def test_accumulation(outcomes):
    for found, local, together in outcomes:
        assert max(found) < 1e-10
        assert difference(together, outcomes[0][2]) == 0
        assert difference(together, local) > 1e-3
    assert difference(outcomes[0][1], outcomes[1][1]) > 1e-3


@check
def several_backwards():
    """Forward and backward in every order, against plain accumulation."""
    found = {}
    ((X, y),) = batches(steps=1)
    X, y = shard(X), shard(y)
    for way in ("F F B", "F F B B", "F B F B", "F B B"):
        net = DistributedDataParallel(here(convnet(norm=True)), 1e-3)

        def loss(net=net):
            return F.cross_entropy(net(X), y)

        if way == "F F B":
            (loss() + loss()).backward()
        elif way == "F F B B":
            losses = [loss(), loss()]
            for each in losses:
                each.backward()
        elif way == "F B B":
            once = loss()
            once.backward(retain_graph=True)
            once.backward()
        else:
            loss().backward()
            loss().backward()
        found[way] = grads(net.module)
    return found


def test_several_backwards(outcomes):
    alone = convnet(norm=True)
    ((X, y),) = batches(steps=1)
    pieces = zip(X.tensor_split(len(outcomes)), y.tensor_split(len(outcomes)))
    for X_shard, y_shard in pieces:
        loss = F.cross_entropy(alone(X_shard), y_shard)
        (2 * loss / len(outcomes)).backward()
    for found in outcomes:
        for way, got in found.items():
            assert difference(got, grads(alone)) < 1e-10, way


@check
def broken_off():
    """A backward that an exception ends, and the step after it."""
    net = DistributedDataParallel(here(Fragile()), TINY)
    found = []
    for i, (X, y) in enumerate(batches(steps=4)):
        X, y = shard(X), shard(y)
        net.zero_grad()
        if i % 2 == 0:  # in the first round, and in a later one
            net.module.breaks = True
            try:
                F.cross_entropy(net(X), y).backward()
            except KeyError:
                found.append([torch.ones(1)])  # it did break
            net.module.breaks = False
            net.zero_grad()
        loss = F.cross_entropy(net(X), y)
        loss.backward()
        found.append(grads(net.module))
    return found


class Fragile(nn.Module):
    """A net whose backward can break between its layers."""

    def __init__(self):
        super().__init__()
        self.layers, self.breaks = convnet(), False

    def forward(self, X):
        hidden = self.layers[:5](X)
        return self.layers[5:](Break.apply(hidden, self.breaks))


class Break(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, breaks):
        ctx.breaks = breaks
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        if ctx.breaks:
            raise KeyError("broken off")
        return grad, None


def test_broken_off(outcomes):
    alone = Fragile()
    expected = []
    for i, (X, y) in enumerate(batches(steps=4)):
        alone.zero_grad()
        F.cross_entropy(alone(X), y).backward()
        expected += [[torch.ones(1)]] * (i % 2 == 0) + [grads(alone)]
    for found in outcomes:
        for got, true in zip(found, expected, strict=True):
            assert difference(got, true) < 1e-10


@check
def checkpoints():
    """Layers that run a backward of their own within the other."""
    net = DistributedDataParallel(here(Checkpointed()), TINY)
    train(net, shard)
    return state(net.module.layers)


class Checkpointed(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = convnet()

    def forward(self, X):
        hidden = self.layers[:2](X)
        part = self.layers[2:6]
        hidden = checkpoint(part, hidden, use_reentrant=True)
        part = self.layers[6:]
        return checkpoint(part, hidden, use_reentrant=True)


def test_checkpoints(outcomes):
    alone = convnet()
    train(alone, lambda x: x)
    for trained in outcomes:
        assert difference(trained, state(alone)) < 1e-10


# Parameters that are not used.


class Branches(nn.Module):
    """A trunk and branches, some of which a rank uses; one no rank uses."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(4)
        self.branches = nn.ModuleList(nn.Linear(6, 5) for _ in range(5))
        self.trunk = nn.Linear(36, 6)
        self.frozen = nn.Linear(2, 2).requires_grad_(False)
        self.never = nn.Parameter(torch.randn(3))
        self.double()

    def forward(self, X, chosen):
        hidden = self.trunk(X.flatten(1))
        return sum(self.branches[i](hidden) for i in chosen)


@check
def unused():
    """Which branches are used differs by rank and by step."""
    found = []
    for megabytes in SIZES:
        ours, theirs = both(Branches, megabytes, find_unused_parameters=True)
        for i, (X, y) in enumerate(batches(steps=6)):
            rank = dist.get_rank()
            chosen = [[0], [rank], [1, 2 + rank % 2], [rank, 4]][i % 4]
            with watched() as calls:
                for net in (ours, theirs):
                    net.zero_grad(set_to_none=i != 3)
                    out = net(shard(X), chosen)
                    F.cross_entropy(out, shard(y)).backward()
            num_reduced = [name for name, *_ in calls].count("all_reduce")
            assert num_reduced == len(ours.buckets.buckets)
            found.append((grads(ours.module), grads(theirs.module)))
    return found


def test_unused(outcomes):
    for found in outcomes:
        for ours, theirs in found:
            assert difference(ours, theirs) < 1e-10
            assert ours[0] is None  # never, on no rank
        # Zero to nine of the branches' gradients are there.
        assert len({sum(g is None for g in ours) for ours, _ in found}) > 2
    for others in zip(*outcomes):
        for ours, _ in others:
            assert difference(ours, others[0][0]) == 0


# Buffers, copies, other wrappers.


class Sundry(nn.Module):
    """Tensors of all sorts, different on each rank."""

    def __init__(self, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.weight = nn.Parameter(torch.randn(3, 5).t())
        self.frozen = nn.Parameter(torch.randn(4).bfloat16(), False)
        self.register_buffer("number", torch.tensor(seed))
        self.register_buffer("mask", torch.rand(3, 7) > 0.5)
        self.register_buffer("none", torch.rand(0, 3))
        self.register_buffer("hidden", torch.rand(2), persistent=False)

    def forward(self, X):
        self.number += 1 + dist.get_rank()
        return X @ self.weight


@check
def start_as_rank_0():
    module = here(Sundry(seed=dist.get_rank()))
    net = DistributedDataParallel(module)
    first = [*state(module), *values([module.hidden])]
    numbers = []
    X = torch.ones(1, 5, device=rank_device())
    for _ in range(3):
        net(X).sum().backward()
        numbers.append(int(module.number))
    # Forwards that send nothing, so that one rank may run them alone.
    if dist.get_rank() == 0:
        net.eval()
        net(X)
        net.train()
        with torch.no_grad():
            net(X)
    net(X).sum().backward()
    numbers.append(int(module.number))
    without = DistributedDataParallel(module, broadcast_buffers=False)
    for _ in range(2):
        without(X).sum().backward()
    numbers.append(int(module.number))
    return first, numbers


def test_start_as_rank_0(outcomes):
    module = Sundry(seed=0)
    expected = [*state(module), module.hidden]
    for rank, (first, numbers) in enumerate(outcomes):
        assert all(map(torch.equal, first, expected))
        # Rank 0 counts 1, 2, 3, 5, 6; each adds its own to rank 0's count.
        counted = [c + 1 + rank for c in (0, 1, 2, 5)]
        assert numbers == [*counted, 6 + 2 * (1 + rank)]


@check
def copies():
    """A copy is a wrapper of its own; a dropped one sends nothing."""
    net = DistributedDataParallel(here(convnet()), 1e-3)
    train(net, shard)
    clones = [copy.deepcopy(net), pickle.loads(pickle.dumps(net))]
    clones.append(DistributedDataParallel(copy.deepcopy(net.module), 1e-3))
    ((X, y),) = batches(steps=1)
    found = []
    for each in (net, *clones):
        each.zero_grad()
        F.cross_entropy(each(shard(X)), shard(y)).backward()
        found.append(grads(each.module))
    accuracy = dpkit.evaluate_accuracy(net, [(X, y)], [rank_device()] * 2)
    module, optimizer = net.module, torch.optim.SGD(net.parameters(), LR)
    del net, each
    again = DistributedDataParallel(module, 25.0)
    step(again, optimizer, shard(X), shard(y))
    with watched() as calls:
        step(again, optimizer, shard(X), shard(y))
    return found, accuracy, [name for name, *_ in calls]


def test_copies(outcomes):
    for found, accuracy, calls in outcomes:
        assert max(difference(f, outcomes[0][0][0]) for f in found) < 1e-12
        assert accuracy == outcomes[0][1] > 0
        assert calls == ["all_reduce"]


@check
def views():
    """Gradients are where the buckets are, and stay there."""
    net = DistributedDataParallel(here(convnet()), 1e-3)
    optimizer = torch.optim.SGD(net.parameters(), LR)
    found = []
    for i, (X, y) in enumerate(batches()):
        step(net, optimizer, shard(X), shard(y), keep=i % 2 == 1)
        homes = [b.flat.untyped_storage() for b in net.buckets.buckets]
        starts = {home.data_ptr() for home in homes}
        where = [p.grad.untyped_storage().data_ptr() for p in net.parameters()]
        assert set(where) == starts
        found.append([p.grad.data_ptr() for p in net.parameters()])
    return [places == found[0] for places in found]


def test_views(outcomes):
    assert outcomes == [[True] * STEPS] * len(outcomes)


@check
def different_modules():
    rank = dist.get_rank()
    odd = dist.get_world_size() - 1
    pairs = [
        (nn.Linear(3, 2), nn.Linear(3, 4)),
        (nn.Linear(3, 2), nn.Linear(3, 2, bias=False)),
        (nn.Linear(3, 2), nn.Linear(3, 2).double()),
        (nn.Conv2d(3, 2, 2), nn.Conv2d(3, 2, 2).to(memory_format=LAST)),
    ]
    told = []
    for common, other in pairs:
        try:
            DistributedDataParallel(here(other if rank == odd else common))
        except ValueError as error:
            told.append(str(error))
    return told


LAST = torch.channels_last


def test_different_modules(outcomes):
    odd = len(outcomes) - 1
    for told in outcomes:
        assert told == outcomes[0]
        assert len(told) == 4
        for text in told:
            head = "the modules of the ranks differ (rank 0: ("
            assert text.startswith(head)
            assert f", rank {odd}: " in text


@check
def different_wrappers():
    is_odd = dist.get_rank() == dist.get_world_size() - 1
    told = []
    for options in ({"bucket_megabytes": 2.0}, {"broadcast_buffers": False}):
        module = here(nn.Linear(3, 2))
        with pytest.raises(ValueError, match="wrappers of the rank") as caught:
            DistributedDataParallel(module, **options if is_odd else {})
        told.append(str(caught.value))
    return told


def test_different_wrappers(outcomes):
    odd = len(outcomes) - 1
    assert outcomes == [
        [
            "the wrappers of the ranks differ (rank 0: ('bucket_megabytes', "
            f"25.0), rank {odd}: ('bucket_megabytes', 2.0))",
            "the wrappers of the ranks differ (rank 0: ('broadcast_buffers', "
            f"True), rank {odd}: ('broadcast_buffers', False))",
        ]
    ] * len(outcomes)


SMALL = [
    torch.int16,
    torch.uint16,
    torch.uint32,
    torch.uint64,
    torch.complex64,
]


@check
def rare_buffers():
    """Buffers of dtypes that not all backends know."""
    module = nn.Linear(3, 2)
    for i, dtype in enumerate(SMALL):
        x = torch.arange(2 * i + 1) + 300 * (1 + dist.get_rank())
        module.register_buffer(f"buffer_{i}", x.to(dtype))
    DistributedDataParallel(here(module))
    return [b.cpu() for b in module.buffers()]


def test_rare_buffers(outcomes):
    for found in outcomes:
        for i, (x, dtype) in enumerate(zip(found, SMALL, strict=True)):
            assert torch.equal(x, (torch.arange(2 * i + 1) + 300).to(dtype))


# What is refused, in a group of one.


@pytest.fixture
def group():
    store = dist.HashStore()
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_no_group():
    with pytest.raises(RuntimeError, match=r"no process group .*torchrun"):
        DistributedDataParallel(nn.Linear(3, 2))


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (nn.Identity, r"no parameter requires .*\(parameters: 0\)"),
        (
            lambda: nn.Linear(3, 2).requires_grad_(False),
            r"no parameter requires .*\(parameters: 2\)",
        ),
        (
            lambda: nn.Sequential(nn.Linear(3, 2), nn.LazyLinear(4)),
            r"no shapes yet \(module: Sequential, parameter: 1.weight\)",
        ),
        (
            lambda: nn.Linear(3, 2).to(dpkit.devices(2, "sim")[1]),
            r"simulated device \(device: sim:1\)",
        ),
        (
            lambda: nn.Sequential(
                nn.Linear(3, 2), nn.Linear(2, 2).to(torch.device("meta"))
            ),
            r"several devices \(devices: cpu, meta\)",
        ),
    ],
)
def test_modules_that_cannot_be_trained(group, make, told):
    with pytest.raises(ValueError, match=told):
        DistributedDataParallel(make())


@pytest.mark.parametrize("megabytes", [0, -3])
def test_buckets_without_room(group, megabytes):
    with pytest.raises(ValueError, match=f"bucket_megabytes: {megabytes}"):
        DistributedDataParallel(nn.Linear(3, 2), megabytes)


def test_a_group_of_one(group):
    net, alone = DistributedDataParallel(convnet()), convnet()
    for each in (net, alone):
        train(each, lambda x: x)
    assert difference(state(net.module), state(alone)) == 0
    assert list(net.state_dict()) == [
        f"module.{n}" for n in alone.state_dict()
    ]


def thaw(module):
    module[1].requires_grad_()


def load(module):
    state = {n: torch.ones_like(p) for n, p in module.state_dict().items()}
    module.load_state_dict(state, assign=True)
    module[1].requires_grad_(False)


def replace(module):
    module[0] = nn.Linear(3, 5)


@pytest.mark.parametrize(
    ("change", "name"),
    [(thaw, "1.weight"), (load, "0.weight"), (replace, "0.weight")],
)
def test_parameters_that_change_after_wrapping(group, change, name):
    net = nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 2))
    net[1].requires_grad_(False)
    wrapped = DistributedDataParallel(net)
    X = torch.ones(4, 3)
    wrapped(X).sum().backward()
    change(net)
    told = rf"after the module was wrapped \(parameter: {name}, .*wrap .*again"
    with pytest.raises(RuntimeError, match=told):
        wrapped(X)
    with torch.no_grad():
        wrapped(X)
    again = DistributedDataParallel(net)
    again(X).sum().backward()
    assert all(p.grad is not None for p in net.parameters() if p.requires_grad)
    net.requires_grad_(False)[0].bias.requires_grad_()
    again(X)  # fewer may be trained


def test_no_sync_ends_with_its_block(group):
    net = DistributedDataParallel(convnet())
    enabled = []
    with suppress(KeyError), net.no_sync():
        with net.no_sync():
            enabled.append(net.buckets.enabled)
        enabled.append(net.buckets.enabled)
        raise KeyError
    assert [*enabled, net.buckets.enabled] == [False, False, True]
