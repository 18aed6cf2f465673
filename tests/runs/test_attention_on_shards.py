"""Attention on DTensors equals that of one device, and its gradients too.

The rules of how it lies on ranks are PyTorch's, for CUDA's kernels. In float64
CUDA composes attention of products, and so do ranks.
"""

from itertools import product

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import (
    DTensor,
    Partial,
    Replicate,
    Shard,
    distribute_tensor,
    experimental,
)
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.experimental._attention import (
    context_parallel_unshard,
)
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn import functional as F

import dpkit
from tests.runs.engines_on_ranks import loss_of, transformer, words
from tests.weekly import few_of

EXAMPLES, HEADS, LENGTH, WIDTH = 4, 8, 5, 4
# Whole, by examples, by heads, by words, and by numbers of a word.
WAYS = [Replicate(), Shard(0), Shard(1), Shard(2), Shard(3)]
CLOSE = {torch.float64: 1e-13, torch.float32: 1e-5, torch.bfloat16: 0.05}


@pytest.fixture(autouse=True)
def registered():
    dpkit.sim.register()


def tensors(shapes, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    options = {"generator": generator, "dtype": dtype}
    return [torch.randn(shape, **options) for shape in shapes]


def attend(xs, to_device, mask=None, **options):
    """Return the output and the gradients, as whole tensors on the CPU."""
    query, key, value = (to_device(x).requires_grad_() for x in xs[:3])
    leaves = [query, key, value]
    if mask is not None:
        mask = to_device(mask)
        if options.pop("learnt", False):
            leaves.append(mask.requires_grad_())
    out = F.scaled_dot_product_attention(query, key, value, mask, **options)
    loss = (out * to_device(xs[3])).sum()
    loss.backward()
    found = [out.detach(), *[x.grad for x in leaves]]
    whole = [x.full_tensor() if isinstance(x, DTensor) else x for x in found]
    return [x.cpu() for x in whole]


def on_mesh(mesh, way):
    """Return what makes a DTensor; small masks cannot be cut everywhere."""

    def make(x):
        cuts = [p.dim if isinstance(p, Shard) else 0 for p in way]
        fits = x.dim() == 4 and all(x.shape[d] > 1 for d in cuts)
        placements = way if fits else [Replicate()] * mesh.ndim
        return distribute_tensor(x.to("sim"), mesh, placements)

    return make


def check(shape, ways, xs, mask=None, **options):
    """Compare attention on a mesh, laid out in each of the ways."""
    expected = attend(xs, lambda x: x.clone(), mask, **options)

    def program():
        mesh = init_device_mesh("sim", shape)
        return [attend(xs, on_mesh(mesh, w), mask, **options) for w in ways]

    for rank in dpkit.sim.launch(program, torch.Size(shape).numel()):
        for way, found in zip(ways, rank, strict=True):
            for x, y in zip(found, expected, strict=True):
                assert x.shape == y.shape
                assert (x - y).abs().max() <= CLOSE[x.dtype], way


ONE_AXIS = [[way] for way in WAYS]


def shapes(heads=HEADS, key_heads=None, length=LENGTH, examples=EXAMPLES):
    queries = examples, heads, LENGTH, WIDTH
    keys = examples, key_heads or heads, length, WIDTH
    return [queries, keys, keys, queries]


# -- as on one device


@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize("size", few_of([2, 4], [2]))
def test_every_way_equals_one_device(size, dtype):
    xs = tensors(shapes(), dtype)
    check((size,), ONE_AXIS, xs, is_causal=True)
    check((size,), ONE_AXIS, xs, scale=0.3)


TWO_AXES = [
    [Shard(0), Shard(1)],
    [Shard(1), Shard(0)],
    [Shard(1), Shard(1)],
    [Replicate(), Shard(1)],
    [Shard(0), Shard(2)],
]


def test_two_axes():
    """Without a mask: PyTorch 2.15 has no rule for its gradient there."""
    check((2, 2), TWO_AXES, tensors(shapes()), is_causal=True)


@pytest.mark.parametrize(
    ("examples", "heads"), few_of([(3, 5), (1, 3), (5, 1), (1, 1)], [(3, 5)])
)
def test_what_ranks_do_not_divide(examples, heads):
    """Some ranks have no example, or no head."""
    check((4,), ONE_AXIS, tensors(shapes(heads, examples=examples)))


def test_keys_of_another_length():
    check((2,), ONE_AXIS, tensors(shapes(length=7)))


@pytest.mark.parametrize("dims", [3, 2])
def test_fewer_dimensions(dims):
    xs = [x.flatten(0, 4 - dims) for x in tensors(shapes())]
    check((2,), [[Shard(d)] for d in range(dims)], xs, is_causal=True)


def test_no_rank_sends_what_it_has():
    """By heads and by examples, forward and backward are a rank's own."""

    def program():
        mesh = init_device_mesh("sim", (2,))
        counts = []
        for way in (Shard(0), Shard(1), Replicate()):
            make = on_mesh(mesh, [way])
            xs = [make(x).requires_grad_() for x in tensors(shapes())]
            mask = make(tensors([(EXAMPLES, 1, LENGTH, LENGTH)])[0])
            before = own_launches()
            F.scaled_dot_product_attention(*xs[:3], mask).backward(xs[3])
            counts.append(own_launches() - before)
            shape = list(xs[0].to_local().shape)
            assert list(xs[0].grad.to_local().shape) == shape
            assert xs[0].grad.placements == (way,)
        return counts

    assert dpkit.sim.launch(program, 2) == [[0, 0, 0]] * 2


def own_launches():
    """Return how many collectives this rank has called so far."""
    (group,) = dist.distributed_c10d._world.pg_map
    return sum(group._counts.values()) + len(group._counts)


# -- masks

MASKS = {
    "for all": (LENGTH, LENGTH),
    "of examples": (EXAMPLES, 1, LENGTH, LENGTH),
    "of heads": (1, HEADS, LENGTH, LENGTH),
    "of both": (EXAMPLES, HEADS, LENGTH, LENGTH),
    "of none": (1, 1, LENGTH, LENGTH),
    "of keys": (EXAMPLES, 1, 1, LENGTH),
    "of three dimensions": (HEADS, LENGTH, LENGTH),
}


@pytest.mark.parametrize("name", few_of(MASKS, ["of heads", "of keys"]))
def test_masks(name):
    """One that hides, and one that is added and learnt."""
    (mask,) = tensors([MASKS[name]])
    check((2,), ONE_AXIS, tensors(shapes()), mask > -1)
    check((2,), ONE_AXIS, tensors(shapes()), mask, learnt=True)


@pytest.mark.parametrize("name", few_of(MASKS, ["of both"]))
def test_a_mask_that_lies_otherwise_is_brought_there(name):
    """Whole masks, and gradients that lie in another way than the queries."""
    xs, (mask,) = tensors(shapes()), tensors([MASKS[name]])
    expected = attend(xs, lambda x: x.clone(), mask)

    def attended(mesh, way, gradient):
        def make(x, how):
            return distribute_tensor(x.to("sim"), mesh, [how])

        leaves = [make(x, way).requires_grad_() for x in xs[:3]]
        whole = make(mask, Replicate())
        out = F.scaled_dot_product_attention(*leaves, whole)
        out.backward(make(xs[3], gradient))
        found = [out.detach(), *[x.grad for x in leaves]]
        return [x.full_tensor().cpu() for x in found]

    def program():
        mesh = init_device_mesh("sim", (2,))
        return [attended(mesh, *two) for two in product(WAYS[:3], WAYS)]

    for rank in dpkit.sim.launch(program, 2):
        for found in rank:
            for x, y in zip(found, expected, strict=True):
                assert (x - y).abs().max() <= 1e-5


# -- heads of queries in groups


@pytest.mark.parametrize(
    ("heads", "key_heads", "size"),
    few_of([(8, 4, 2), (8, 4, 4), (6, 2, 2)], [(6, 2, 2)]),
)
def test_groups_of_heads(heads, key_heads, size):
    """As many as ranks divide: PyTorch's rules for CUDA want that."""
    xs = tensors(shapes(heads, key_heads))
    check((size,), ONE_AXIS, xs, enable_gqa=True, is_causal=True)


# -- dropout


@pytest.mark.parametrize("way", [Replicate(), Shard(0), Shard(1)])
def test_dropout(way):
    """The mean over many dropouts; each keeps a number or doubles it.

    Shards on two ranks drop alike, as on CUDA from one seed on both.
    """

    def program():
        mesh = init_device_mesh("sim", (2,))
        torch.manual_seed(0)
        make = on_mesh(mesh, [way])
        ones = torch.ones(4, 2, 300, 4, dtype=torch.float32)
        for causal in (False, True):
            q = make(ones)
            out = F.scaled_dot_product_attention(
                q, q, q, dropout_p=0.5, is_causal=causal
            )
            last = out.to_local()[:, :, -1].cpu()
            assert (last - 1).abs().max() < 0.3
            # No two heads, queries of which there are many, drop alike.
            heads = out.to_local().cpu()[..., 0].flatten(0, 1)
            assert heads.unique(dim=0).shape == heads.shape
        return last

    found = dpkit.sim.launch(program, 2)
    assert found[0].equal(found[1])


def test_dropout_of_what_is_whole_is_one_devices():
    xs = tensors(shapes())

    def run(make):
        torch.manual_seed(0)
        return attend(xs, make, dropout_p=0.3, is_causal=True)

    def program():
        mesh = init_device_mesh("sim", (2,))
        return run(on_mesh(mesh, [Replicate()]))

    expected = run(lambda x: x.to("sim:0", copy=True))
    for found in dpkit.sim.launch(program, 2):
        for x, y in zip(found, expected):
            assert (x - y).abs().max() <= 1e-5


# -- PyTorch's tutorial: split layers and shards of them


def cut_in_two_ways(tp, dp):
    """Train a transformer by tensor parallelism times FSDP."""
    model = transformer().to("sim")
    mesh = init_device_mesh("sim", (dp, tp), mesh_dim_names=("dp", "tp"))
    whole = {name: ColwiseParallel(use_local_output=False) for name in "qkv"}
    plan = {
        **whole,
        "o": RowwiseParallel(),
        "up": ColwiseParallel(),
        "down": RowwiseParallel(),
    }
    blocks = list(model)[1:3]
    for block in blocks:
        parallelize_module(block, mesh["tp"], plan)
    for layer in (*blocks, model):
        fully_shard(layer, mesh=mesh["dp"])
    x, y = (t.chunk(dp)[mesh["dp"].get_local_rank()] for t in words())
    loss_of(model(x.to("sim")), y.to("sim")).backward()
    return {n: p.grad.full_tensor().cpu() for n, p in model.named_parameters()}


@pytest.mark.parametrize(
    ("tp", "dp"), few_of([(2, 1), (2, 2), (4, 1), (1, 2)], [(2, 2)])
)
def test_split_layers_and_shards_of_them(tp, dp):
    model, (x, y) = transformer(), words()
    loss_of(model(x), y).backward()
    for found in dpkit.sim.launch(cut_in_two_ways, tp * dp, tp, dp):
        for name, p in model.named_parameters():
            assert (found[name] - p.grad).abs().max() < 1e-12, name


def test_attention_of_pieces_of_heads():
    """A layout as after a product: each head is split over no rank."""

    def program():
        mesh = init_device_mesh("sim", (2,))
        flat = distribute_tensor(
            tensors([(EXAMPLES, LENGTH, HEADS * WIDTH)])[0].to("sim"),
            mesh,
            [Shard(2)],
        )
        q = flat.view(EXAMPLES, LENGTH, HEADS, WIDTH).transpose(1, 2)
        out = F.scaled_dot_product_attention(q, q, q)
        joined = out.transpose(1, 2).reshape(EXAMPLES, LENGTH, HEADS * WIDTH)
        assert joined.placements == (Shard(2),)
        assert out.stride() == plain_out.stride()
        return joined.full_tensor().cpu()

    flat = tensors([(EXAMPLES, LENGTH, HEADS * WIDTH)])[0]
    q = flat.view(EXAMPLES, LENGTH, HEADS, WIDTH).transpose(1, 2)
    plain_out = F.scaled_dot_product_attention(q, q, q)
    expected = plain_out.transpose(1, 2).flatten(2)
    for found in dpkit.sim.launch(program, 2):
        assert (found - expected).abs().max() < 1e-5


def test_what_is_still_to_be_summed():
    xs = tensors(shapes())
    expected = F.scaled_dot_product_attention(*[2 * x for x in xs[:3]])

    def program():
        mesh = init_device_mesh("sim", (2,))
        parts = [
            DTensor.from_local(x.to("sim"), mesh, [Partial()]) for x in xs[:3]
        ]
        out = F.scaled_dot_product_attention(*parts)
        return out.full_tensor().cpu()

    for found in dpkit.sim.launch(program, 2):
        assert (found - expected).abs().max() < 1e-5


def test_without_values():
    def program():
        mesh = init_device_mesh("sim", (2,))
        q = distribute_tensor(
            torch.ones(4, 8, 5, 2, device="sim"), mesh, [Shard(1)]
        ).requires_grad_()
        out = F.scaled_dot_product_attention(q, q, q, is_causal=True)
        out.sum().backward()
        return tuple(out.shape), tuple(q.grad.to_local().shape)

    with dpkit.sim.machine(backing="meta", hosts="per_device"):
        found = dpkit.sim.launch(program, 2)
    assert found == [((4, 8, 5, 2), (4, 4, 5, 2))] * 2


# -- what is refused


def mixed(allowed=False):
    mesh = init_device_mesh("sim", (2,))
    q = distribute_tensor(torch.ones(2, 2, 5, 4).to("sim"), mesh, [Shard(1)])
    mask = torch.zeros(5, 5, device="sim")
    if allowed:
        with experimental.implicit_replication():
            return F.scaled_dot_product_attention(q, q, q, mask).shape
    return F.scaled_dot_product_attention(q, q, q, mask).shape


def test_plain_tensors_among_dtensors():
    with pytest.raises(RuntimeError, match=r"mixed torch\.Tensor and DTensor"):
        dpkit.sim.launch(mixed, 2)
    assert dpkit.sim.launch(mixed, 2, True) == [(2, 2, 5, 4)] * 2


def on_cpu():
    """Attend on the CPU, by a process of its own; return what happens."""
    dist.init_process_group(
        "gloo", store=dist.HashStore(), rank=0, world_size=1
    )
    try:
        mesh = init_device_mesh("cpu", (1,))
        q = distribute_tensor(torch.ones(1, 1, 2, 2), mesh, [Shard(1)])
        return F.scaled_dot_product_attention(q, q, q, is_causal=True).shape
    except NotImplementedError as error:
        return str(error)
    finally:
        dist.destroy_process_group()


def test_other_processes_have_what_pytorch_has():
    """The rules are those of ranks; with gloo all is as it was before."""
    before = on_cpu()
    dpkit.sim.launch(mixed, 2, True)
    assert on_cpu() == before


# -- sequences in parts


def in_parts(xs, dtype):
    """Attend by PyTorch's ring; return the output and the gradients."""
    mesh = init_device_mesh("sim", (dist.get_world_size(),))
    parts = [x.to("sim", dtype) for x in xs]
    with context_parallel(mesh, buffers=parts, buffer_seq_dims=[2] * 4):
        leaves = [x.requires_grad_() for x in parts[:3]]
        out = F.scaled_dot_product_attention(*leaves, is_causal=True)
        out.backward(parts[3])
        found = [out.detach(), *[x.grad for x in leaves]]
        joined = context_parallel_unshard(mesh, found, [2] * 4)
        for x in leaves:
            x.requires_grad_(False)  # they become whole again
    return [x.float().cpu() for x in joined]


@pytest.mark.parametrize(
    ("accelerator", "dtype"),
    [
        ("v100", torch.float32),  # the kernel "efficient"
        ("a100", torch.bfloat16),  # "flash"
        ("h100", torch.bfloat16),  # "cudnn"
    ],
)
@pytest.mark.parametrize("size", few_of([2, 4], [2]))
def test_context_parallelism(size, accelerator, dtype):
    """A rank has a part of the words, and keys and values go around."""
    length = 64 * size  # CUDA's sums of float32 come in pieces of 32
    xs = tensors([(2, 4, length, 16)] * 4)
    expected = attend(xs, lambda x: x.clone(), is_causal=True)
    with dpkit.sim.machine(accelerator=accelerator, hosts="per_device"):
        ranks = dpkit.sim.launch(in_parts, size, xs, dtype)
    for found in ranks:
        for x, y in zip(found, expected, strict=True):
            assert (x - y).abs().max() <= CLOSE[dtype] * y.abs().max()
