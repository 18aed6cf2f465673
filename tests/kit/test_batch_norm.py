"""Batch norm over ranks and over micro-batches, beside PyTorch's.

The oracle is ``nn.BatchNorm`` on one device with the whole batch: between
processes, PyTorch's ``SyncBatchNorm`` refuses tensors on the CPU. Each check
below runs on all ranks of a pool; the test of its name judges what they
returned.
"""

import copy
import traceback
from contextlib import nullcontext, suppress
from functools import partial

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import dpkit
from dpkit.batch_norm import (
    DeferredBatchNorm,
    SyncBatchNorm,
    combine,
    convert,
    moments,
    recomputing,
)
from dpkit.batch_norm.synchronized import Normalize
from dpkit.processes import Workers

STEPS, CHANNELS = 3, 3
SHAPES = {
    1: (nn.BatchNorm1d, ()),
    2: (nn.BatchNorm2d, (4, 5)),
    3: (nn.BatchNorm3d, (2, 3, 2)),
}
OPTIONS = [
    {},
    {"affine": False},
    {"momentum": None},
    {"track_running_stats": False},
    {"momentum": 0.7, "eps": 0.3},
]
# How many rows each rank has: even, ragged, none.
ROWS = {3: [(2, 2, 2), (3, 3, 1), (0, 5, 2)]}
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
    params=[pytest.param(3, marks=pytest.mark.slow)],
    ids=lambda p: f"{p} ranks",
)
def ranks(request):
    """What each rank returned, by check."""
    with Workers(request.param, "gloo") as workers:
        found = workers.run(run_checks, timeout_seconds=200)
    assert len(found) == request.param > 1
    return found


def draw(*shape, seed=0, dtype=torch.double):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=dtype) * 3 + 5


def make(dims, options, seed=1):
    """Return a batch norm of PyTorch with a weight and a bias of its own."""
    norm = SHAPES[dims][0](CHANNELS, **options).double()
    with torch.no_grad():
        for i, p in enumerate(norm.parameters()):
            p.copy_(draw(CHANNELS, seed=seed + i))
    return norm


def run(norm, X, G):
    """Run forward, and backward from the gradients G of the outputs."""
    X = X.clone().requires_grad_()
    norm.zero_grad()
    Y = norm(X)
    Y.backward(G)
    return Y.detach(), X.grad


def mine(rows):
    """Return the place of this rank's rows in the whole batch."""
    rank = dist.get_rank()
    return slice(sum(rows[:rank]), sum(rows[: rank + 1]))


def away(one, other):
    assert one.shape == other.shape
    assert one.dtype == other.dtype
    if not one.numel():
        return 0.0
    return float((one.double() - other.double()).detach().abs().max())


def buffers_away(one, other):
    found = dict(other.named_buffers())
    assert set(found) == set(dict(one.named_buffers()))
    return max(
        [away(b, found[name]) for name, b in one.named_buffers()], default=0.0
    )


def several_steps(dims, options, rows):
    """Return the largest differences from one device, by what differs."""
    oracle = make(dims, options)
    ours = convert(copy.deepcopy(oracle))
    part, found = mine(rows), dict.fromkeys(("y", "dx", "dp", "running"), 0.0)
    for step in range(STEPS):
        shape = (sum(rows), CHANNELS, *SHAPES[dims][1])
        X, G = draw(*shape, seed=step), draw(*shape, seed=100 + step)
        Y, dX = run(oracle, X, G)
        y, dx = run(ours, X[part], G[part])
        for p in ours.parameters():
            dist.all_reduce(p.grad)
        pairs = {"y": [(y, Y[part])], "dx": [(dx, dX[part])]}
        pairs["dp"] = [
            (p.grad, q.grad)
            for p, q in zip(ours.parameters(), oracle.parameters())
        ]
        for name, tensors in pairs.items():
            found[name] = max([found[name], *(away(a, b) for a, b in tensors)])
        found["running"] = max(found["running"], buffers_away(ours, oracle))
    return found


@check
def like_one_device():
    return [
        (dims, options, rows, several_steps(dims, options, rows))
        for dims in SHAPES
        for options in (OPTIONS if dims == 2 else OPTIONS[:1])
        for rows in ROWS[dist.get_world_size()]
    ]


def test_like_one_device(outcomes):
    """Outputs, gradients and running statistics of every rank."""
    for rank in outcomes:
        assert len(rank) == (1 + len(OPTIONS) + 1) * 3
        for *case, found in rank:
            for what, largest in found.items():
                assert largest <= 1e-10, (case, what)


@check
def each_alone_is_something_else():
    rows = ROWS[dist.get_world_size()][1]
    X, norm = draw(sum(rows), CHANNELS, 4), make(1, {})
    alone, whole = copy.deepcopy(norm), norm(X)
    return away(alone(X[mine(rows)]), whole[mine(rows)])


def test_each_alone_is_something_else(outcomes):
    """What the check above compares does depend on the other ranks."""
    assert min(outcomes) > 0.01


@check
def all_ranks_have_the_same_bits():
    rows = ROWS[dist.get_world_size()][2]
    norm = SyncBatchNorm(CHANNELS)
    norm(draw(sum(rows), CHANNELS, dtype=torch.float)[mine(rows)])
    return norm.running_mean, norm.running_var


def test_all_ranks_have_the_same_bits(outcomes):
    for mean, variance in outcomes:
        assert torch.equal(mean, outcomes[0][0])
        assert torch.equal(variance, outcomes[0][1])


@check
def far_from_zero_in_float32():
    """The mean is a thousand times the deviation."""
    rows = ROWS[dist.get_world_size()][1]
    X = draw(sum(rows), CHANNELS, 50) / 3 + 1000
    exact = nn.BatchNorm1d(CHANNELS).double()
    norm = SyncBatchNorm(CHANNELS)
    y = norm(X.float()[mine(rows)])
    Y = exact(X.float().double())[mine(rows)]
    return away(y.double(), Y), away(
        norm.running_var.double(), exact.running_var
    )


def test_far_from_zero_in_float32(outcomes):
    """A sum of squares would have lost most digits of the variance."""
    for outputs, variance in outcomes:
        assert outputs < 1e-3
        assert variance < 1e-5


@check
def half_precision():
    rows = ROWS[dist.get_world_size()][1]
    found = []
    for dtype in (torch.bfloat16, torch.float16):
        X, G = draw(sum(rows), CHANNELS, 6), draw(sum(rows), CHANNELS, 6)
        X, G = X.to(dtype), G.to(dtype)
        Y, dX = run(nn.BatchNorm1d(CHANNELS).float(), X.float(), G.float())
        norm = SyncBatchNorm(CHANNELS)
        y, dx = run(norm, X[mine(rows)], G[mine(rows)])
        largest = away(y.float(), Y[mine(rows)])
        largest = max(largest, away(dx.float(), dX[mine(rows)]))
        kinds = {y.dtype, dx.dtype}, norm.weight.grad.dtype
        found.append((dtype, kinds, largest / torch.finfo(dtype).eps))
    return found


def test_half_precision(outcomes):
    """As close to float32 as the last rounding allows."""
    for rank in outcomes:
        for dtype, (kinds, of_weight), epsilons in rank:
            assert kinds == {dtype}
            assert of_weight == torch.float32
            assert epsilons < 4


def convnet(dtype=torch.double):
    torch.manual_seed(5)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, bias=False),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64, 6, bias=False),
        nn.BatchNorm1d(6),
        nn.Tanh(),
        nn.Linear(6, 5),
    ).to(dtype)


def train(net, part, weigh):
    """Take steps with momentum, on this part of each batch's seven rows."""
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    for step in range(STEPS):
        X, y = draw(7, 1, 6, 6, seed=step), torch.arange(7) % 5
        losses = F.cross_entropy(net(X[part]), y[part], reduction="none")
        optimizer.zero_grad()
        weigh(losses).backward()
        optimizer.step()


def in_a_network(wrap):
    """Train with the seven rows over all ranks; return the differences."""
    k, oracle = dist.get_world_size(), convnet()
    net = convert(copy.deepcopy(oracle))
    # The wrapper takes the mean over ranks: k times each rank's sum / 7.
    train(wrap(net), mine(ROWS[k][1]), lambda losses: losses.sum() * k / 7)
    train(oracle, slice(None), lambda losses: losses.mean())
    states = net.state_dict(), oracle.state_dict()
    return [away(states[0][name], states[1][name]) for name in states[1]]


@check
def under_ours():
    return in_a_network(dpkit.DistributedDataParallel)


@check
def under_ours_with_small_buckets():
    """Buckets leave while batch norms send in backward, too."""
    return in_a_network(
        partial(dpkit.DistributedDataParallel, bucket_megabytes=1e-5)
    )


@check
def under_pytorchs():
    return in_a_network(nn.parallel.DistributedDataParallel)


def assert_same_network(outcomes):
    for rank in outcomes:
        assert len(rank) == 14
        assert max(rank) <= 1e-10


def test_under_ours(outcomes):
    assert_same_network(outcomes)


def test_under_ours_with_small_buckets(outcomes):
    assert_same_network(outcomes)


def test_under_pytorchs(outcomes):
    assert_same_network(outcomes)


@check
def too_few_values():
    """One row on rank 0, none elsewhere: every rank has to hear of it."""
    rows = int(dist.get_rank() == 0)
    try:
        SyncBatchNorm(CHANNELS)(torch.ones(rows, CHANNELS))
    except ValueError as error:
        return [str(error)]
    return []


def test_too_few_values(outcomes):
    for (message,) in outcomes:
        assert message.endswith("(values over all ranks: 1)")


@check
def one_value_on_each_rank():
    """Each rank's own variance would be zero, and is refused by PyTorch."""
    X = draw(dist.get_world_size(), CHANNELS)
    y = SyncBatchNorm(CHANNELS).double()(X[dist.get_rank()][None])
    Y = nn.BatchNorm1d(CHANNELS).double()(X)
    return away(y[0], Y[dist.get_rank()])


def test_one_value_on_each_rank(outcomes):
    assert max(outcomes) < 1e-12


@check
def evaluation_sends_nothing():
    """Rank 0 evaluates alone: a message would wait for the others."""
    norm = SyncBatchNorm(CHANNELS).double()
    norm(draw(4, CHANNELS))
    norm.eval()
    if dist.get_rank() > 0:
        return 0.0
    alike = nn.BatchNorm1d(CHANNELS).double().eval()
    alike.load_state_dict(norm.state_dict())
    return away(norm(draw(5, CHANNELS)), alike(draw(5, CHANNELS)))


def test_evaluation_sends_nothing(outcomes):
    assert max(outcomes) == 0.0


def like_pytorchs_own(rows_of_rank):
    """Compare with PyTorch's SyncBatchNorm on this rank's GPU."""
    device = torch.device("cuda", dist.get_rank())
    theirs = nn.SyncBatchNorm(CHANNELS).double().to(device)
    ours = SyncBatchNorm(CHANNELS).double().to(device)
    found = 0.0
    for step in range(STEPS):
        shape = (sum(rows_of_rank), CHANNELS, 4)
        X, G = draw(*shape, seed=step), draw(*shape, seed=100 + step)
        part = mine(rows_of_rank)
        X, G = (t[part].to(device) for t in (X, G))
        for a, b in zip(run(ours, X, G), run(theirs, X, G)):
            found = max(found, away(a, b))
        for p, q in zip(ours.parameters(), theirs.parameters()):
            found = max(found, away(p.grad, q.grad))
        found = max(found, buffers_away(ours, theirs))
    return found


@pytest.mark.cuda
@pytest.mark.parametrize("rows", [(4, 4), (4, 3)])
def test_like_pytorchs_own(need_gpus, rows):
    need_gpus(2)
    found = dpkit.launch(like_pytorchs_own, 2, rows, backend="nccl")
    assert len(found) == 2
    assert max(found) < 1e-10


def normalized(X, weight, bias):
    return Normalize.apply(X, weight, bias, moments(X), 0.1)


def test_the_gradients_are_those_of_finite_differences():
    """Also without a process group, and with x̂ depending on every row."""
    leaves = [draw(4, 2, 3), draw(2), draw(2)]
    leaves = [leaf.requires_grad_() for leaf in leaves]
    assert torch.autograd.gradcheck(normalized, leaves)


@pytest.mark.parametrize("sizes", [(7,), (3, 4), (0, 7), (1, 0, 1, 5), (7, 0)])
def test_moments_of_parts(sizes):
    X = draw(7, CHANNELS, 2)
    found = combine([moments(part) for part in X.split(sizes)])
    values = X.transpose(0, 1).flatten(1)
    assert found.num_values == 14
    torch.testing.assert_close(found.mean, values.mean(1))
    torch.testing.assert_close(
        found.variance, values.var(1, correction=0), rtol=1e-12, atol=0
    )


def test_moments_of_nothing():
    nothing = moments(torch.ones(0, 2))
    for part in (nothing, combine([nothing, nothing])):
        assert [t.tolist() for t in part] == [0, [0, 0], [0, 0]]


def test_the_wrong_channels():
    for norm in (SyncBatchNorm(3), DeferredBatchNorm(3, 2)):
        for shape in ((3,), (4, 2), (4, 2, 3)):
            with pytest.raises(ValueError, match="channels in its second"):
                norm(torch.ones(shape))


@pytest.mark.parametrize("m", [None, 1])
def test_tracking_may_end(m):
    norm = convert(make(1, {}), m)
    norm.track_running_stats = False
    before = copy.deepcopy(norm.state_dict())
    norm(draw(5, CHANNELS))
    for name, value in norm.state_dict().items():
        assert torch.equal(value, before[name])


def test_integers():
    for norm in (SyncBatchNorm(3), DeferredBatchNorm(3, 2)):
        with pytest.raises(TypeError, match=r"\(dtype: torch.int64\)"):
            norm(torch.ones(4, 3, dtype=torch.int64))


def converted(num_micro_batches=None):
    net = convnet().train()
    net[5].eval()
    net[1].weight.requires_grad_(False)
    net.append(net[5])  # one module in two places
    return net, convert(copy.deepcopy(net), num_micro_batches)


@pytest.mark.parametrize(
    ("m", "kind"), [(None, SyncBatchNorm), (3, DeferredBatchNorm)]
)
def test_convert_keeps_everything_else(m, kind):
    net, new = converted(m)
    assert [type(new[i]) for i in (1, 5, 8)] == [kind] * 3
    assert [module.training for module in new] == [
        module.training for module in net
    ]
    assert new[5] is new[8]
    assert not new[1].weight.requires_grad
    assert new[5].weight.requires_grad
    for (name, a), (other, b) in zip(
        net.state_dict().items(), new.state_dict().items(), strict=True
    ):
        assert name == other
        assert torch.equal(a, b)


def test_convert_keeps_the_very_tensors():
    net = convnet()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    known = {id(p) for p in optimizer.param_groups[0]["params"]}
    mean = net[1].running_mean
    assert {id(p) for p in convert(net).parameters()} == known
    assert net[1].running_mean is mean


@pytest.mark.parametrize("m", [None, 2])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_convert_keeps_the_options(options, m):
    norm = make(1, options)
    assert norm.extra_repr() in convert(norm, m).extra_repr()


def test_convert_of_a_batch_norm_itself():
    norm = nn.BatchNorm2d(3, eps=0.1, momentum=None, affine=False)
    new = convert(norm, 4)
    assert isinstance(new, DeferredBatchNorm)
    assert (new.eps, new.momentum, new.num_micro_batches) == (0.1, None, 4)
    assert list(new.parameters()) == []
    assert type(norm) is nn.BatchNorm2d


@pytest.mark.parametrize("training", [True, False])
def test_a_weight_without_a_bias(training):
    norm = make(1, {}).train(training)
    norm.register_parameter("bias", None)
    new, X, G = convert(copy.deepcopy(norm)), draw(5, 3), draw(5, 3)
    for found, expected in zip(run(new, X, G), run(norm, X, G)):
        assert away(found, expected) < 1e-10
    assert away(new.weight.grad, norm.weight.grad) < 1e-10


def test_convert_leaves_others_alone():
    net = nn.Sequential(nn.GroupNorm(1, 4), nn.InstanceNorm2d(4))
    before = list(net)
    assert list(convert(net)) == before


@pytest.mark.parametrize("dims", SHAPES)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("m", [1, 2, 3])
def test_deferred_statistics_are_those_of_whole_batches(dims, options, m):
    whole = make(dims, options)
    deferred = convert(copy.deepcopy(whole), m)
    for step in range(STEPS):
        X = draw(7, CHANNELS, *SHAPES[dims][1], seed=step)
        whole(X)
        for part in X.tensor_split(m):
            deferred(part)
        assert buffers_away(deferred, whole) <= 1e-10


def test_statistics_of_micro_batches_are_others():
    """What the test above compares does depend on the whole batch."""
    whole, alone = make(1, {}), make(1, {})
    X = draw(7, CHANNELS)
    whole(X)
    for part in X.tensor_split(3):
        alone(part)
    assert away(whole.running_var, alone.running_var) > 0.1


def test_deferred_outputs_are_those_of_micro_batches():
    """It mends the statistics, not the outputs."""
    whole, alone = make(2, {}), make(2, {})
    deferred = convert(make(2, {}), 2)
    X = draw(7, CHANNELS, 4, 5)
    for part, Y in zip(X.tensor_split(2), whole(X).tensor_split(2)):
        y = deferred(part)
        assert torch.equal(y, alone(part))
        assert away(y, Y) > 0.01


def test_deferred_statistics_wait_for_the_last_micro_batch():
    norm = DeferredBatchNorm(CHANNELS, num_micro_batches=3).double()
    for i in range(5):
        norm(draw(2, CHANNELS, seed=i))
        assert norm.num_batches_tracked == (i + 1) // 3
    norm.forget()  # two micro-batches of the second batch
    for i in range(3):
        assert norm.num_batches_tracked == 1
        norm(draw(2, CHANNELS, seed=i))
    assert norm.num_batches_tracked == 2


def test_deferred_in_replicas(get_devices):
    """Only what the first device saw counts, as with any batch norm."""
    devices, alone = get_devices(2), DeferredBatchNorm(CHANNELS, 2)
    norm = DeferredBatchNorm(CHANNELS, 2).to(devices[0])
    for step in range(4):
        X = draw(5, CHANNELS, seed=step).float()
        dpkit.DataParallel(norm, devices)(X)
        alone(X[:3])
        assert norm.num_batches_tracked == (step + 1) // 2
    assert away(norm.running_var.cpu(), alone.running_var) < 1e-5


def test_deferred_evaluation_in_the_middle_of_a_batch():
    norm, alike = DeferredBatchNorm(3, 2), DeferredBatchNorm(3, 2)
    for seed in range(2):
        norm.train()(draw(4, 3, seed=seed).float())
        alike(draw(4, 3, seed=seed).float())
        norm.eval()(draw(4, 3, seed=9).float())
    assert norm.num_batches_tracked == 1
    assert buffers_away(norm, alike) == 0


def test_deferred_evaluation():
    norm = convert(make(1, {}), 2)
    X = draw(7, CHANNELS)
    for part in X.tensor_split(2):
        norm(part)
    alike = make(1, {}).eval()
    alike.load_state_dict(norm.state_dict())
    before = copy.deepcopy(norm.state_dict())
    for _ in range(2):
        assert torch.equal(norm.eval()(X), alike(X))
    for name, value in norm.state_dict().items():
        assert torch.equal(value, before[name])


@pytest.mark.parametrize("m", [None, 2])
def test_evaluation_without_running_statistics(m):
    """There are only those of the batch, and they are not remembered."""
    norm = make(2, {"track_running_stats": False}).eval()
    X = draw(7, CHANNELS, 4, 5)
    for _ in range(2):
        assert away(convert(copy.deepcopy(norm), m)(X), norm(X)) < 1e-12


def test_no_micro_batches():
    with pytest.raises(ValueError, match=r"\(num_micro_batches: 0\)"):
        DeferredBatchNorm(3, 0)


def test_a_checkpoint_counts_once():
    whole, deferred = make(1, {}), convert(make(1, {}), 2)
    X = draw(7, CHANNELS).requires_grad_()
    whole(X)
    for part in X.tensor_split(2):
        checkpoint(
            deferred,
            part,
            use_reentrant=False,
            context_fn=lambda: (nullcontext(), recomputing()),
        ).sum().backward()
    assert deferred.num_batches_tracked == 1
    assert buffers_away(deferred, whole) <= 1e-10


def test_recomputing_ends_with_its_block():
    norm = DeferredBatchNorm(CHANNELS, 1)
    with suppress(KeyError), recomputing():
        norm(torch.ones(2, CHANNELS))
        raise KeyError
    assert norm.num_batches_tracked == 0
    norm(torch.ones(2, CHANNELS))
    assert norm.num_batches_tracked == 1


@pytest.mark.parametrize(
    ("schedule", "recompute"),
    [
        ("naive", False),
        ("gpipe", True),
        ("1f1b", False),
        ("1f1b", True),
        ("zb-h1", False),
    ],
)
def test_in_a_pipeline(get_devices, schedule, recompute):
    """Parameters do not move, so the statistics are one device's.

    The first batch norm sees the same numbers, whatever the micro-batches.
    """
    whole = convnet(torch.float)
    pipeline = dpkit.Pipeline(
        dpkit.split_layers(convert(copy.deepcopy(whole), 3), 2),
        get_devices(2),
        schedule=schedule,
        num_micro_batches=3,
        recompute=recompute,
    )
    norms = [m for m in pipeline.modules() if isinstance(m, DeferredBatchNorm)]
    assert len(norms) == 2
    for step in range(STEPS):
        X, y = draw(7, 1, 6, 6, seed=step).float(), torch.arange(7) % 5
        pipeline.forward_backward(X, y, nn.CrossEntropyLoss())
        whole(X)
        for norm in norms:
            assert norm.num_batches_tracked == step + 1
        first, expected = norms[0].to("cpu"), whole[1]
        assert away(first.running_mean, expected.running_mean) < 1e-5
        assert away(first.running_var, expected.running_var) < 1e-5
        first.to(pipeline.devices[0])
