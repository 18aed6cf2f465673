"""What ranks draw for DTensors: of shards, of replicas, and afterwards."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import tensor as dtensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import (
    DTensor,
    Replicate,
    Shard,
    _random,
    distribute_module,
    distribute_tensor,
)
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import dpkit
from dpkit.runs.ranks.shard_random import ShardTracker
from tests.weekly import few_of, weekly

SHAPE = 6, 8
SIZES = few_of([2, 4], [2])  # of worlds


@pytest.fixture(autouse=True)
def registered():
    dpkit.sim.register()


def mesh_of(*shape):
    names = ("outer", "inner")[: len(shape)]
    return init_device_mesh("sim", shape, mesh_dim_names=names)


def of_zeros(placements, mesh=None, shape=SHAPE):
    """Return a DTensor of zeros on all ranks."""
    mesh = mesh or mesh_of(dist.get_world_size())
    return distribute_tensor(
        torch.zeros(shape, device="sim"), mesh, placements
    )


def local(x):
    return x.to_local().cpu()


# -- numbers that are one device's

DRAWING = {
    "normal_": lambda x: x.normal_(),
    "uniform_": lambda x: x.uniform_(2, 3),
    "bernoulli_": lambda x: x.bernoulli_(0.3),
    "bernoulli": lambda x: (x + 0.5).bernoulli(),
    "rand_like": torch.rand_like,
    "randn_like": torch.randn_like,
    "randint_like": lambda x: torch.randint_like(x, 1000),
    "dropout": lambda x: F.dropout(x + 1, 0.4),
    "kaiming_uniform_": nn.init.kaiming_uniform_,
    "trunc_normal_": nn.init.trunc_normal_,
}


def drawn_three_times(draw, x):
    torch.manual_seed(3)
    return [draw(x).clone() for _ in range(3)] + [torch.rand(2)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", DRAWING)
def test_whole_on_every_rank_is_one_devices(name, size):
    draw = DRAWING[name]
    expected = drawn_three_times(draw, torch.zeros(SHAPE, device="sim"))
    assert not expected[0].equal(expected[1])

    def program():
        *out, plain = drawn_three_times(draw, of_zeros([Replicate()]))
        return [*map(local, out), plain]

    for found in dpkit.sim.launch(program, size):
        for x, y in zip(found, expected, strict=True):
            assert x.equal(y.cpu())


@pytest.mark.parametrize("make", ["rand", "randn"])
def test_a_factory_draws_what_one_device_draws(make):
    torch.manual_seed(5)
    expected = getattr(torch, make)(SHAPE, device="sim").cpu()

    def program():
        torch.manual_seed(5)
        make_whole = getattr(dtensor, make)
        return local(make_whole(SHAPE, device_mesh=mesh_of(2)))

    for found in dpkit.sim.launch(program, 2):
        assert found.equal(expected)


def test_one_shard_is_one_devices():
    torch.manual_seed(0)
    expected = torch.rand(SHAPE)

    def program():
        torch.manual_seed(0)
        return local(torch.rand_like(of_zeros([Shard(0)], mesh_of(1))))

    assert dpkit.sim.launch(program, 1)[0].equal(expected)


# -- shards, replicas, and what comes afterwards


def alike(tensors):
    return all(x.equal(tensors[0]) for x in tensors)


def all_differ(tensors):
    """Return whether no two have a number in common."""
    flat = torch.cat([x.flatten() for x in tensors])
    return flat.unique().numel() == flat.numel()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", ["normal_", "uniform_", "rand_like"])
def test_shards_differ_and_ranks_go_on_alike(name, size):
    draw = DRAWING[name]

    def program():
        torch.manual_seed(1)
        first, second = (draw(of_zeros([Shard(0)])) for _ in range(2))
        after = draw(of_zeros([Replicate()])), torch.rand(3)
        return local(first), local(second), local(after[0]), after[1]

    first, second, *after = zip(*dpkit.sim.launch(program, size))
    assert all_differ([*first, *second])
    assert all(map(alike, after))


def test_dropout_masks_of_two_shards_differ():
    def program():
        torch.manual_seed(0)
        return local(F.dropout(of_zeros([Shard(0)], shape=(64, 4)) + 1))

    for first, second in [dpkit.sim.launch(program, 2)]:
        assert set(first.unique().tolist()) == {0.0, 2.0}
        assert not first.equal(second)


@pytest.mark.parametrize("cuts", [0, 1])
def test_replicas_of_a_shard_are_equal(cuts):
    """On 2 × 2 ranks, of which one axis cuts: ranks 0 1 / 2 3."""
    placements = [Replicate(), Replicate()]
    placements[cuts] = Shard(1)

    def program():
        torch.manual_seed(2)
        x = of_zeros(placements, mesh_of(2, 2)).normal_()
        return local(x), torch.rand(3)

    shards, after = zip(*dpkit.sim.launch(program, 4))
    other = 2 if cuts == 1 else 1
    replica = [shards[0], shards[other]]
    assert alike(replica)
    assert alike([shards[3 - other], shards[3]])
    assert all_differ([shards[0], shards[3]])
    assert alike(after)


@pytest.mark.parametrize(
    "placements", [[Shard(0), Shard(1)], [Shard(0), Shard(0)]]
)
def test_shards_of_two_axes_differ(placements):
    def program():
        torch.manual_seed(2)
        return local(of_zeros(placements, mesh_of(2, 2), (8, 8)).normal_())

    assert all_differ(dpkit.sim.launch(program, 4))


@pytest.mark.parametrize("rows", [1, 3, 5])
def test_shards_of_different_sizes(rows):
    """Some have no rows at all."""

    def program():
        torch.manual_seed(2)
        x = of_zeros([Shard(0)], shape=(rows, 7)).uniform_()
        return local(x), x.full_tensor().cpu(), torch.rand(2)

    shards, whole, after = zip(*dpkit.sim.launch(program, 4))
    assert torch.cat(shards).shape == (rows, 7)
    assert all_differ(shards)
    assert alike(whole)
    assert whole[0].equal(torch.cat(shards))
    assert alike(after)


def test_many_shards_are_spread_as_they_should():
    def program():
        torch.manual_seed(7)
        return of_zeros([Shard(0)], shape=(400, 100)).normal_().full_tensor()

    x = dpkit.sim.launch(program, 4)[0].cpu()
    assert abs(x.mean().item()) < 0.02
    assert abs(x.std().item() - 1) < 0.02
    rows = torch.corrcoef(x.view(4, -1))
    assert (rows - torch.eye(4)).abs().max() < 0.05


# -- the standard start of FSDP


def start(shape, seed=0):
    """Make a network without memory, cut it, and draw its parameters."""
    torch.manual_seed(seed)
    with torch.device("meta"):
        net = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 3))
    mesh = mesh_of(*shape)
    for layer in (net[0], net[2], net):
        fully_shard(layer, mesh=mesh)
    net.to_empty(device="sim")
    for layer in (net[0], net[2]):
        layer.reset_parameters()
    return net


@pytest.mark.parametrize("shape", [(2,), weekly(((4,),)), (2, 2)])
def test_fsdp_starts_without_memory(shape):
    def program():
        net = start(shape)
        whole = [p.full_tensor().cpu() for p in net.parameters()]
        net(torch.ones(2, 8, device="sim")).sum().backward()
        return whole, [local(p) for p in net.parameters()], torch.rand(2)

    ranks = torch.Size(shape).numel()
    found = dpkit.sim.launch(program, ranks)
    whole, shards, after = zip(*found)
    assert alike(after)
    for same in zip(*whole):
        assert alike(same)
    for weight in whole[0]:
        bound = 8**-0.5 if weight.shape[0] == 6 else 6**-0.5
        assert 0 < weight.abs().max() <= bound
        assert all_differ([weight])
    if len(shape) == 2:  # replicas 0 1 / 0 1
        for pair in zip(*shards):
            assert alike(pair[0::2])
            assert alike(pair[1::2])
    again = dpkit.sim.launch(program, ranks)
    assert all(map(torch.equal, whole[0], again[0][0]))


def test_fsdp_of_split_layers_starts_without_memory():
    def program():
        torch.manual_seed(0)
        mesh = mesh_of(2, 2)
        with torch.device("meta"):
            net = nn.Linear(8, 8, bias=False)
        parallelize_module(net, mesh["inner"], ColwiseParallel())
        fully_shard(net, mesh=mesh["outer"])
        net.to_empty(device="sim")
        net.reset_parameters()
        weight = net.weight.full_tensor().cpu()
        return local(net.weight), weight, torch.rand(2)

    shards, whole, after = zip(*dpkit.sim.launch(program, 4))
    assert [x.shape for x in shards] == [(2, 8)] * 4
    assert all_differ(shards)
    assert alike(whole)
    assert all_differ([whole[0]])
    assert alike(after)


def test_fsdp_starts_without_numbers_too():
    def program():
        with pytest.raises(RuntimeError, match="no numbers"):
            next(start((2,)).parameters()).to_local().tolist()
        return [tuple(p.to_local().shape) for p in start((2,)).parameters()]

    with dpkit.sim.machine(backing="meta", hosts="per_device"):
        first, second = dpkit.sim.launch(program, 2)
    assert first == [(3, 8), (3,), (2, 6), (2,)]
    assert second == [(3, 8), (3,), (1, 6), (1,)]


# -- generators, seeds and states


@pytest.mark.parametrize("device", ["sim", "cpu"])
def test_a_generator_of_ones_own_is_refused(device):
    def draw():
        own = torch.Generator(device)
        of_zeros([Shard(0)]).normal_(generator=own)

    with pytest.raises(RuntimeError, match="from the default generator alone"):
        dpkit.sim.launch(draw, 2)


def test_the_first_draw_gives_all_the_state_of_rank_0(caplog):
    """As on CUDA; PyTorch's log tells of it where states differed."""

    def program():
        torch.manual_seed(dist.get_rank())
        return local(of_zeros([Replicate()]).normal_())

    found = dpkit.sim.launch(program, 2)
    torch.manual_seed(0)
    assert found[0].equal(torch.zeros(SHAPE).normal_())
    assert alike(found)
    assert "synchronizing RNG states" in caplog.text


def test_seeds_set_by_dtensor_are_kept():
    """Stages of a pipeline have other seeds, and draw no common number."""

    def program():
        rank = dist.get_rank()
        _random.manual_seed(rank // 2, mesh_of(4))
        x = of_zeros([Replicate()]).normal_()
        return local(x), id(_random._rng_tracker)

    found, trackers = zip(*dpkit.sim.launch(program, 4))
    assert alike(found[:2])
    assert alike(found[2:])
    assert all_differ([found[0], found[2]])
    assert len(set(trackers)) == 4


def test_what_dtensor_is_told_to_leave_alone():
    def program():
        _random.manual_seed(0, mesh_of(2))
        _random._rng_tracker.distribute_region_enabled = False
        return local(of_zeros([Shard(0)]).normal_())

    assert alike(dpkit.sim.launch(program, 2))


def test_a_state_is_taken_and_set():
    def program():
        torch.manual_seed(0)
        x = of_zeros([Shard(0)])
        state = torch.sim.get_rng_state()
        first = local(x.normal_())
        torch.sim.set_rng_state(state)
        second = local(x.normal_())
        with torch.random.fork_rng([dist.get_rank()], device_type="sim"):
            x.normal_()
        third = local(x.normal_())
        torch.sim.set_rng_state(state)
        x.normal_()
        return first, second, third, local(x.normal_())

    for first, second, third, fourth in dpkit.sim.launch(program, 2):
        assert first.equal(second)
        assert third.equal(fourth)
        assert not third.equal(first)


# -- networks


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(6, 8), nn.Linear(8, 6)
        self.norm = nn.LayerNorm(6)

    def forward(self, x, again=False):
        if again:
            return checkpoint(self.forward, x, use_reentrant=False)
        y = F.dropout(self.down(F.dropout(self.up(x), 0.5)), 0.25)
        return F.dropout(self.norm(y), 0.5)


PLANS = {
    "tp": {
        "up": ColwiseParallel(use_local_output=False),
        "down": RowwiseParallel(use_local_output=False),
    },
    "sequence": {
        "up": ColwiseParallel(use_local_output=False),
        "down": RowwiseParallel(
            output_layouts=Shard(0), use_local_output=False
        ),
        "norm": SequenceParallel(sequence_dim=0),
    },
}


def trained(plan, again):
    """Return the output and the gradients of a network that is split."""
    torch.manual_seed(0)
    net = Network().to("sim").double()
    mesh = mesh_of(dist.get_world_size())
    parallelize_module(net, mesh, PLANS[plan])
    distribute_module(net, mesh)  # the norm, where the plan leaves it out
    torch.manual_seed(1)
    x = torch.ones(4, 6, device="sim", dtype=torch.double)
    out = net(x, again)
    after = torch.rand(2)
    out.full_tensor().square().sum().backward()
    grads = [p.grad.full_tensor().cpu() for p in net.parameters()]
    return out.full_tensor().detach().cpu(), after, *grads


@pytest.mark.parametrize("plan", PLANS)
def test_layers_computed_again_drop_the_same(plan):
    once, again = (
        dpkit.sim.launch(trained, 2, plan, again) for again in (False, True)
    )
    for found in zip(*once, *again):
        assert alike(found)
    assert (once[0][0] == 0).any()


def test_what_layers_drop_on_ranks():
    """What is whole loses the same numbers on all ranks; shards others."""

    def program(plan):
        torch.manual_seed(0)
        layer = nn.Linear(8, 6, bias=False).to("sim")
        nn.init.ones_(layer.weight)
        layer = parallelize_module(layer, mesh_of(2), PLANS[plan]["down"])
        torch.manual_seed(1)
        x = torch.ones(40, 4, device="sim")
        return local(F.dropout(layer(x), 0.5)) > 0

    assert alike(dpkit.sim.launch(program, 2, "tp"))
    first, second = dpkit.sim.launch(program, 2, "sequence")
    assert first.shape == second.shape
    assert not first.equal(second)


# -- only on ranks


def fail():
    of_zeros([Shard(0)]).normal_()
    raise ValueError


@pytest.mark.parametrize("program", [lambda: start((2,)) and None, fail])
def test_dtensor_has_its_own_again_after_a_launch(program):
    mark = object()
    before = _random.OffsetBasedRNGTracker
    handlers = DTensor._op_dispatcher._custom_op_handlers
    known = dict(handlers)
    assert not issubclass(before, ShardTracker)
    _random._rng_tracker = mark
    try:
        if program is fail:
            with pytest.raises(RuntimeError, match="ValueError"):
                dpkit.sim.launch(program, 2)
        else:
            dpkit.sim.launch(program, 2)
        assert _random._rng_tracker is mark
        assert _random.OffsetBasedRNGTracker is before
        assert DTensor._op_dispatcher._custom_op_handlers is handlers
        assert handlers == known
    finally:
        _random._rng_tracker = None
