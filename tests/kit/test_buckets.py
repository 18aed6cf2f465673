"""Tests of dpkit.buckets: what shares a bucket, when it is reduced."""

import math
import random
import weakref
from itertools import chain, pairwise

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.checkpoint import checkpoint

import dpkit
from dpkit.buckets import Buckets, assign

TINY = 1e-9  # megabytes: a bucket for each gradient
SIZES = [TINY, 1e-4, 1e-3, 25.0]


class Log:
    """Buckets that reduce nothing, and note what they are told."""

    def __init__(self, params, megabytes=25.0, settles=True):
        self.events = []
        self.flats = []
        self.settles = settles
        self.buckets = Buckets(
            params,
            megabytes,
            on_start=lambda buckets: self.events.append("start"),
            on_full=self.take,
            on_end=self.end,
        )

    def take(self, bucket):
        self.events.append(bucket.index)
        self.flats.append(bucket.flat.clone())

    def end(self, buckets):
        self.events.append("end")
        if self.settles:
            buckets.settle()


def mlp(device="cpu", dtype=torch.double):
    torch.manual_seed(3)
    layers = [nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 4), nn.Linear(4, 3)]
    return nn.Sequential(*layers).to(device, dtype)


def run(net, rows=6, seed=0):
    generator = torch.Generator().manual_seed(seed)
    p = next(net.parameters())
    X = torch.randn(rows, 5, generator=generator, dtype=torch.double)
    net(X.to(p.device, p.dtype)).square().sum().backward()


def grads(net):
    return [p.grad for p in net.parameters()]


def plain_grads(net, seeds=(0,)):
    net.zero_grad()
    for seed in seeds:
        run(net, seed=seed)
    return [p.grad.clone() for p in net.parameters()]


def all_equal(these, those):
    assert len(these) == len(those) > 0
    return all(map(torch.equal, these, those))


def lie_in(buckets, params):
    """Whether all gradients are views of the buckets, none over another."""
    storages = {b.flat.untyped_storage().data_ptr() for b in buckets.buckets}
    spans = []
    for p in params:
        if p.grad.untyped_storage().data_ptr() not in storages:
            return False
        start = p.grad.data_ptr()
        spans.append((start, start + p.grad.nbytes))
    spans.sort()
    return all(end <= start for (_, end), (start, _) in pairwise(spans))


def have_views(buckets, params):
    """Whether the gradients are the very views that the buckets made."""
    views = {
        p: view
        for bucket in buckets.buckets
        for p, view in zip(bucket.params, bucket.gradients, strict=True)
    }
    return all(p.grad is views[p] for p in params)


# Which tensors share a bucket.


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("first_bytes", [None, 40, 400])
def test_assignment(seed, first_bytes):
    draw = random.Random(seed)
    dtypes = [torch.float32, torch.float64, torch.bfloat16]
    tensors = [
        torch.empty(draw.choice([0, 1, 3, 20, 70, 200]), dtype=dtype)
        for dtype in draw.choices(dtypes, k=draw.randrange(1, 40))
    ]
    groups = assign(tensors, 400, first_bytes)
    assert sorted(chain(*groups)) == list(range(len(tensors)))
    assert [g[-1] for g in groups] == sorted(g[-1] for g in groups)
    for dtype in dtypes:
        mine = [g for g in groups if tensors[g[0]].dtype == dtype]
        sizes = [[tensors[i].nbytes for i in g] for g in mine]
        limits = [first_bytes or 400] + [400] * len(mine)
        assert all(tensors[i].dtype == dtype for g in mine for i in g)
        assert [*chain(*mine)] == sorted(chain(*mine))
        for limit, these, those in zip(limits, sizes, [*sizes[1:], None]):
            assert sum(these[:-1]) < limit
            assert those is None or sum(these) >= limit


@pytest.mark.parametrize("seed", range(20))
def test_buckets_are_those_of_pytorch(seed):
    draw = random.Random(seed)
    count = draw.randrange(1, 40)
    tensors = [torch.empty(draw.choice([1, 3, 20, 200])) for _ in range(count)]
    theirs, _ = dist._compute_bucket_assignment_by_size(tensors, [40, 400])
    assert assign(tensors, 400, 40) == theirs


def test_nothing_to_assign():
    assert assign([], 100) == []


def test_tensors_on_two_devices(get_devices):
    one, other = get_devices(2)
    tensors = [torch.zeros(2, device=d) for d in (one, other, one, other)]
    on_one_device = one == other  # the CPU is one
    expected = [[0, 1, 2, 3]] if on_one_device else [[0, 2], [1, 3]]
    assert assign(tensors, 100) == expected


def test_the_first_bucket_is_small():
    half = [torch.empty(2**17, requires_grad=True) for _ in range(9)]
    buckets = Buckets(half, 2, on_full=print)
    assert [len(b.params) for b in buckets.buckets] == [2, 4, 3]
    flat = Buckets(half, math.inf, math.inf, on_full=print)
    assert [len(b.params) for b in flat.buckets] == [9]
    small = Buckets(half, 0.5, on_full=print)
    assert [len(b.params) for b in small.buckets] == [1] * 9


def test_the_order_in_which_buckets_fill_counts():
    """A bucket that was begun first can be full last."""
    dtypes = [torch.float32] + [torch.float64] * 2 + [torch.float32]
    tensors = [torch.empty(1, dtype=dtype) for dtype in dtypes]
    assert assign(tensors, 100) == [[1, 2], [0, 3]]


# Rounds.


@pytest.mark.parametrize("megabytes", SIZES)
def test_gradients_are_right_and_lie_in_buckets(get_devices, megabytes):
    (device,) = get_devices(1)
    expected = plain_grads(mlp(device))
    net = mlp(device)
    log = Log(net.parameters(), megabytes)
    buckets = log.buckets
    for step in range(3):
        net.zero_grad(set_to_none=step < 2)
        run(net)
        assert all_equal(grads(net), expected)
        assert have_views(buckets, net.parameters())
    indices = list(range(len(buckets.buckets)))
    assert log.events == ["start", *indices, "end"] * 3
    assert len(indices) == {TINY: 6, 1e-4: 3, 1e-3: 1, 25.0: 1}[megabytes]


def test_storage_is_shared():
    net = mlp()
    buckets = Log(net.parameters(), 1e-4).buckets
    run(net)
    assert lie_in(buckets, net.parameters())
    net[0].weight.grad.fill_(8)
    (home,) = [b for b in buckets.buckets if net[0].weight in set(b.params)]
    assert (home.flat == 8).sum() == 35


@pytest.mark.parametrize("megabytes", SIZES)
def test_what_a_bucket_holds(megabytes):
    net = mlp()
    expected = plain_grads(net)
    net.zero_grad()
    log = Log(net.parameters(), megabytes)
    run(net)
    where = {p: i for i, p in enumerate(net.parameters())}
    for bucket, flat in zip(log.buckets.buckets, log.flats, strict=True):
        parts = [expected[where[p]].flatten() for p in bucket.params]
        ones = torch.ones(len(parts), dtype=torch.double)
        assert torch.equal(flat, torch.cat([*parts, ones]))


def test_full_buckets_do_not_wait_for_the_end():
    net = mlp()
    log = Log(net.parameters(), TINY)
    for i, p in enumerate(net.parameters()):
        p.register_post_accumulate_grad_hook(
            lambda p, i=i: log.events.append(f"g{i}")
        )
    run(net)
    seen = [e for e in log.events if isinstance(e, str) and e[0] == "g"]
    last = log.events.index(seen[-1])
    assert log.events.index(4) < last  # all but the last of six
    assert log.events[-1] == "end"


class Backwards(nn.Module):
    """A net that uses its layers from the last to the first."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.layers = nn.ModuleList(nn.Linear(5, 5) for _ in range(4))
        self.double()

    def forward(self, X):
        for layer in reversed(self.layers):
            X = layer(X).tanh()
        return X


def test_the_order_of_backward():
    net = Backwards()
    log = Log(net.parameters(), TINY)
    made = []
    for i, p in enumerate(net.parameters()):
        p.register_post_accumulate_grad_hook(lambda p, i=i: made.append(i))
    assert log.buckets.order == list(range(8))[::-1]
    run(net)
    assert log.buckets.order == made != list(range(8))[::-1]
    before = grads(net)
    copies = [g.clone() for g in before]
    log.buckets.rebuild(log.buckets.order)
    # The gradients moved over, and bucket after bucket fills in order now.
    assert all_equal(grads(net), copies)
    assert not any(a is b for a, b in zip(grads(net), before))
    assert lie_in(log.buckets, net.parameters())
    where = {p: i for i, p in enumerate(net.parameters())}
    assert [where[b.params[0]] for b in log.buckets.buckets] == made
    net.zero_grad()
    log.events.clear()
    run(net)
    assert all_equal(grads(net), copies)
    assert log.events == ["start", *range(8), "end"]


def test_full_buckets_leave_as_soon_as_the_one_before_has_left():
    """Not with the next gradient, or at the end: that would be late."""
    a, b, c = (torch.ones(1, requires_grad=True) for _ in range(3))
    events = []
    a.register_post_accumulate_grad_hook(lambda p: events.append("a"))
    log = Log([a, b, c], TINY)
    log.events = events
    # The buckets are those of c, b and a; backward makes b, c, a.
    (a.exp() * c * b).backward()
    assert events == ["start", 0, 1, "a", 2, "end"]


def test_the_order_is_that_of_the_last_backward():
    net = Fork()
    log = Log(net.parameters())
    names = [name for name, _ in net.named_parameters()]
    for side, other in (("left", "right"), ("right", "left")):
        net(torch.ones(2, 5).double(), side).sum().backward()
        order = [names[i].split(".")[0] for i in log.buckets.order]
        assert order[:4] == [side, side, "trunk", "trunk"]
        assert sorted(order[4:]) == sorted([other, other, "unused"])


def test_to_rebuild_what_is_right_changes_nothing():
    net = mlp()
    buckets = Log(net.parameters(), TINY).buckets
    before = buckets.buckets
    buckets.rebuild(buckets.order)
    assert buckets.buckets is before


def test_accumulation():
    expected = plain_grads(mlp(), seeds=(1, 2, 3))
    net = mlp()
    log = Log(net.parameters(), 1e-4)
    log.buckets.enabled = False
    run(net, seed=1)
    assert log.events == []
    assert not lie_in(log.buckets, net.parameters())
    log.buckets.enabled = True
    run(net, seed=2)
    run(net, seed=3)
    assert all_equal(grads(net), expected)
    assert lie_in(log.buckets, net.parameters())


def test_gradients_that_the_user_replaced():
    net = mlp()
    log = Log(net.parameters(), 1e-4)
    run(net)
    mine = [torch.randn_like(p) for p in net.parameters()]
    for p, grad in zip(net.parameters(), mine):
        p.grad = grad.clone()
    fresh = plain_grads(mlp())
    run(net)
    expected = [a + b for a, b in zip(mine, fresh)]
    assert all_equal(grads(net), expected)
    assert lie_in(log.buckets, net.parameters())


def test_backward_twice_through_one_graph():
    net = mlp()
    log = Log(net.parameters(), 1e-4)
    out = net(torch.ones(2, 5).double()).sum()
    out.backward(retain_graph=True)
    once = [g.clone() for g in grads(net)]
    out.backward()
    assert all_equal(grads(net), [2 * g for g in once])
    assert log.events == ["start", *range(3), "end"] * 2


def test_gradients_that_are_asked_for_and_not_left():
    net = mlp()
    log = Log(net.parameters())
    out = net(torch.ones(2, 5).double()).sum()
    torch.autograd.grad(out, list(net.parameters()))
    assert log.events == []


@pytest.mark.filterwarnings("ignore:Using backward.. with create_graph")
def test_gradients_of_gradients_are_no_views_of_graphs():
    net = mlp()
    log = Log(net.parameters(), 1e-4)
    out = net(torch.ones(2, 5).double()).square().sum()
    out.backward(create_graph=True)
    assert not any(g.requires_grad for g in grads(net))
    assert lie_in(log.buckets, net.parameters())


# Parameters without a gradient.


class Fork(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.trunk = nn.Linear(5, 4)
        self.left, self.right = nn.Linear(4, 3), nn.Linear(4, 2)
        self.unused = nn.Parameter(torch.randn(3))
        self.double()

    def forward(self, X, side="left"):
        return getattr(self, side)(self.trunk(X))


@pytest.mark.parametrize("megabytes", [TINY, 1e-4, 25.0])
def test_what_another_rank_has(get_devices, megabytes):
    """Two replicas, each with a gradient that the other lacks."""
    (device,) = get_devices(1)
    nets = [Fork().to(device) for _ in range(2)]
    logs = [Log(n.parameters(), megabytes, settles=False) for n in nets]
    X = torch.randn(6, 5).double().to(device)
    for net, side in zip(nets, ("left", "right")):
        net(X, side).square().sum().backward()
    for pair in zip(*(log.buckets.buckets for log in logs), strict=True):
        mean = (pair[0].flat + pair[1].flat) / 2
        for bucket in pair:
            bucket.flat.copy_(mean)
    for log in logs:
        log.buckets.settle()
    alone = Fork().to(device)
    loss = sum(alone(X, side).square().sum() for side in ("left", "right"))
    (loss / 2).backward()
    for net, log in zip(nets, logs):
        for p, reference in zip(net.parameters(), alone.parameters()):
            if reference is alone.unused:
                assert p.grad is None
            else:
                torch.testing.assert_close(p.grad, reference.grad)
        reached = [p for p in net.parameters() if p is not net.unused]
        assert have_views(log.buckets, reached)


class Replicas:
    """Replicas in one process, whose buckets meet when all are full."""

    def __init__(self, nets, megabytes):
        self.waiting = {}
        self.num_ended = 0
        self.buckets = [
            Buckets(
                net.parameters(),
                megabytes,
                on_full=self.take,
                on_end=self.end,
            )
            for net in nets
        ]

    def take(self, bucket):
        group = self.waiting.setdefault(bucket.index, [])
        group.append(bucket.flat)
        if len(group) == len(self.buckets):
            dpkit.allreduce(self.waiting.pop(bucket.index), op="mean")

    def end(self, buckets):
        self.num_ended += 1
        if self.num_ended == len(self.buckets):
            assert self.waiting == {}
            order = self.buckets[0].order
            for each in self.buckets:
                each.settle()
                each.rebuild(order)
            self.num_ended = 0


@pytest.mark.parametrize("megabytes", [TINY, 1e-4, 25.0])
def test_replicas_in_one_process(get_devices, megabytes):
    """Each uses another branch; in the last step, none uses a certain one."""
    devices = get_devices(3)
    nets = [Fork().to(device) for device in devices]
    replicas = Replicas(nets, megabytes)
    alone = Fork()
    for sides in (["left", "right", "left"], ["right"] * 3):
        X = torch.randn(6, 5).double()
        losses = []
        for side, shard, net in zip(sides, dpkit.scatter(X, devices), nets):
            net.zero_grad()
            losses.append(net(shard, side).square().sum())
        torch.autograd.backward(losses)
        alone.zero_grad()
        for side, shard in zip(sides, X.tensor_split(3)):
            (alone(shard, side).square().sum() / 3).backward()
        for net, buckets in zip(nets, replicas.buckets, strict=True):
            reached = []
            for p, reference in zip(net.parameters(), alone.parameters()):
                if reference.grad is None:
                    assert p.grad is None
                else:
                    torch.testing.assert_close(p.grad.cpu(), reference.grad)
                    reached.append(p)
            assert have_views(buckets, reached)
    layouts = {
        tuple(len(b.params) for b in buckets.buckets)
        for buckets in replicas.buckets
    }
    assert len(layouts) == 1


def test_a_gradient_from_before_counts():
    net = Fork()
    log = Log(net.parameters(), 1e-4)
    X = torch.randn(6, 5).double()
    net(X, "left").sum().backward()
    net.right.weight.grad = torch.full((2, 4), 3.0).double()
    net(X, "left").sum().backward()
    assert (net.right.weight.grad == 3).all()
    assert lie_in(log.buckets, [net.right.weight])
    # It is sent, and its flag says so: another rank may have none.
    buckets = log.buckets.buckets
    for bucket, flat in zip(buckets, log.flats[len(buckets) :], strict=True):
        has = [p.grad is not None for p in bucket.params]
        assert flat[-len(has) :].tolist() == has
    assert net.right.bias.grad is None
    assert net.unused.grad is None


def test_no_stale_numbers_are_sent():
    """What a bucket holds from the round before is not sent again."""
    net = Fork()
    log = Log(net.parameters())
    X = torch.randn(6, 5).double()
    net(X, "left").sum().backward()
    net.zero_grad()
    net(X, "right").sum().backward()
    (bucket,) = log.buckets.buckets
    left = {net.left.weight, net.left.bias, net.unused}
    *parts, flags = log.flats[1].split(
        [p.numel() for p in bucket.params] + [7]
    )
    for p, part, flag in zip(bucket.params, parts, flags):
        assert (part.abs().sum() == 0) == (flag == 0) == (p in left)
        assert (p.grad is None) == (p in left)


def test_parameters_frozen_later():
    net = mlp()
    log = Log(net.parameters(), TINY)
    net[0].requires_grad_(False)
    run(net)
    assert net[0].weight.grad is None
    assert net[2].weight.grad is not None
    assert log.events == ["start", *range(6), "end"]


# What breaks off.


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


@pytest.mark.parametrize("megabytes", SIZES)
def test_a_backward_that_is_broken_off(get_devices, megabytes):
    (device,) = get_devices(1)
    net = mlp(device)
    expected = plain_grads(net)
    net.zero_grad()
    log = Log(net.parameters(), megabytes)
    hidden = Break.apply(net[:2](torch.ones(2, 5).double().to(device)), True)
    with pytest.raises(KeyError, match="broken off"):
        net[2:](hidden).sum().backward()
    assert net[3].weight.grad is not None
    assert "end" not in log.events
    net.zero_grad()
    log.events.clear()
    run(net)
    assert all_equal(grads(net), expected)
    indices = range(len(log.buckets.buckets))
    assert log.events == ["start", *indices, "end"]


def test_checkpoints_within_backward():
    """Each runs a backward of its own, within the other."""
    net = mlp()
    expected = plain_grads(net)
    net.zero_grad()
    log = Log(net.parameters(), TINY)
    X = torch.randn(
        6, 5, generator=torch.Generator().manual_seed(0), dtype=torch.double
    )
    hidden = checkpoint(net[:3], X.requires_grad_(), use_reentrant=True)
    net[3](hidden).square().sum().backward()
    assert all_equal(grads(net), expected)
    assert log.events == ["start", *range(6), "end"]


def test_checkpoints_alone():
    """The round ends with the inner backward; another follows."""
    net = mlp()
    expected = plain_grads(net)
    net.zero_grad()
    log = Log(net.parameters(), TINY)
    X = torch.randn(
        6, 5, generator=torch.Generator().manual_seed(0), dtype=torch.double
    )
    hidden = net[:3](X)
    checkpoint(net[3], hidden, use_reentrant=True).square().sum().backward()
    assert all_equal(grads(net), expected)
    assert lie_in(log.buckets, net.parameters())


def test_a_gradient_that_comes_too_late():
    torch.manual_seed(0)
    layer, head = nn.Linear(3, 3), nn.Linear(3, 2)
    log = Log([*layer.parameters(), *head.parameters()], TINY)
    X = torch.randn(4, 3, requires_grad=True)
    for _ in range(2):
        X = checkpoint(layer, X, use_reentrant=True)
    with pytest.raises(RuntimeError, match=r"\(3,?.*use_reentrant=False"):
        head(X).sum().backward()
    assert log.events[-1] != "end"


def test_sparse_gradients():
    table = nn.Embedding(5, 3, sparse=True)
    log = Log(table.parameters())
    with pytest.raises(TypeError, match=r"\(5, 3\), layout .*sparse_coo"):
        table(torch.tensor([1, 1])).sum().backward()
    assert log.events == ["start"]


@pytest.mark.parametrize("megabytes", [0, -1.0, float("nan")])
def test_bad_sizes(megabytes):
    with pytest.raises(ValueError, match=f"bucket_megabytes: {megabytes}"):
        Buckets(mlp().parameters(), megabytes, on_full=print)
    with pytest.raises(ValueError, match=f"first_megabytes: {megabytes}"):
        Buckets(mlp().parameters(), 25, megabytes, on_full=print)


# Layouts, dtypes, and the end of it all.


def test_strides_are_those_of_the_parameters(get_devices):
    (device,) = get_devices(1)
    torch.manual_seed(1)
    conv = nn.Conv2d(3, 4, 2).to(device, memory_format=torch.channels_last)
    tilted = nn.Parameter(torch.randn(3, 5, device=device).t())
    gaps = nn.Parameter(torch.randn(4, 6, device=device)[:, ::2])
    params = [*conv.parameters(), tilted, gaps]
    log = Log(params)
    X = torch.randn(2, 3, 5, 6, device=device)

    def loss():
        ones = torch.arange(15.0, device=device).view(5, 3)
        return conv(X).square().sum() + (tilted * ones).sum() + gaps.sum()

    expected = torch.autograd.grad(loss(), params)
    loss().backward()
    strides = [p.stride() for p in params[:3]]
    assert [p.grad.stride() for p in params[:3]] == strides
    for p, grad in zip(params, expected):
        torch.testing.assert_close(p.grad, grad, rtol=0, atol=0)
    assert lie_in(log.buckets, params)


def test_several_dtypes_and_odd_shapes():
    dtypes = [torch.float32, torch.bfloat16, torch.complex64, torch.float64]
    shapes = [(), (0, 3), (2, 5), (7,)]
    params = [
        nn.Parameter(torch.randn(shape, dtype=dtype))
        for shape in shapes
        for dtype in dtypes
    ]
    log = Log(params)
    total = sum((p.abs() ** 2).sum().double() for p in params)
    expected = torch.autograd.grad(total, params, retain_graph=True)
    total.backward()
    assert all_equal([p.grad for p in params], expected)
    assert len(log.buckets.buckets) == 4
    assert all(len(b.params) == 4 for b in log.buckets.buckets)


def test_the_parameters_do_not_keep_the_buckets():
    net = mlp()
    events = []
    buckets = Buckets(net.parameters(), on_full=events.append)
    gone = weakref.ref(buckets)
    run(net)
    assert len(events) == 1
    events.clear()
    del buckets
    assert gone() is None
    run(net)
    assert events == []
    for p in net.parameters():
        assert not p._post_accumulate_grad_hooks


def test_optimizer_steps(get_devices):
    (device,) = get_devices(1)
    nets = mlp(device), mlp(device)
    log = Log(nets[0].parameters(), 1e-4)
    for net in nets:
        optimizer = torch.optim.Adam(net.parameters(), 0.01)
        for seed in range(4):
            optimizer.zero_grad(set_to_none=seed % 2 == 0)
            run(net, seed=seed)
            optimizer.step()
    assert all_equal(list(nets[0].parameters()), list(nets[1].parameters()))
    assert lie_in(log.buckets, nets[0].parameters())


def test_the_last_buckets_count():
    net = mlp()
    expected = plain_grads(net)
    net.zero_grad()
    logs = [Log(net.parameters(), size) for size in (TINY, 25.0)]
    run(net)
    assert logs[0].events == []
    assert logs[1].events == ["start", 0, "end"]
    assert all_equal(grads(net), expected)
    assert have_views(logs[1].buckets, net.parameters())
    # Others that lie apart, or around it.
    other = mlp()
    around = Log([*net.parameters(), *other.parameters()])
    run(net)
    assert logs[1].events == ["start", 0, "end"]
    assert around.events == ["start", 0, "end"]
    told = r"\(shared: 6, in the others: 12\); release"
    with pytest.raises(ValueError, match=told):
        Log(net.parameters())
    around.buckets.release()
    last = Log(net.parameters())
    run(net)
    assert all_equal(grads(net), [3 * g for g in expected])
    assert last.events == ["start", 0, "end"]
