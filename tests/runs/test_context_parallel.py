"""PyTorch's ``context_parallel``, on simulated ranks and in processes."""

import re

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.experimental._attention import (
    _cp_options,
    context_parallel_unshard,
    set_rotate_method,
)
from torch.nn import functional as F

import dpkit
from dpkit.processes import rank_device
from dpkit.sequence import use_cpu_kernel_in_ring
from tests.kit.sequence_on_ranks import one_device, wholes
from tests.runs import engines_on_ranks as engines

SHAPE = 2, 4, 48, 8
# Causal, balanced, and how keys and values go round.
CASES = [
    (True, False, "allgather"),
    (True, False, "alltoall"),
    (True, True, "allgather"),
    (True, True, "alltoall"),
    (False, False, "allgather"),
    (False, False, "alltoall"),
]


def mesh_of_all():
    kind = rank_device().type
    return init_device_mesh(kind, (dist.get_world_size(),))


def in_ring(causal, balanced, method, mesh=None, number=0, pause=None):
    """Return outputs and gradients, joined, by PyTorch's ring in float64."""
    use_cpu_kernel_in_ring()
    set_rotate_method(method)
    _cp_options.enable_load_balance = balanced
    mesh = mesh or mesh_of_all()
    parts = [(x + number).to(rank_device()) for x in wholes(shape=SHAPE)]
    with context_parallel(
        mesh,
        buffers=parts,
        buffer_seq_dims=[2] * 4,
        no_restore_buffers=set(parts),
    ):
        assert parts[0].shape[2] == SHAPE[2] // mesh.size()
        leaves = [x.requires_grad_() for x in parts[:3]]
        out = F.scaled_dot_product_attention(*leaves, is_causal=causal)
        if pause is not None:
            dist.all_reduce(pause)
        out.backward(parts[3])
    found = [out.detach(), *[x.grad for x in leaves]]
    joined = context_parallel_unshard(mesh, found, [2] * 4)
    return [x.cpu() for x in joined]


def expected(causal, number=0):
    if not number:
        return one_device(causal, shape=SHAPE)
    *three, gradient = (x + number for x in wholes(shape=SHAPE))
    leaves = [x.requires_grad_() for x in three]
    out = F.scaled_dot_product_attention(*leaves, is_causal=causal)
    out.backward(gradient)
    return [out.detach(), *[x.grad for x in leaves]]


def largest(ranks, causal, number=0):
    return max(
        float((x - y).abs().max())
        for rank in ranks
        for x, y in zip(rank, expected(causal, number), strict=True)
    )


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_simulated_ranks_equal_one_device(case, size):
    ranks = dpkit.sim.launch(in_ring, size, *case)
    assert largest(ranks, causal=case[0]) < 1e-14


def every_case():
    return [in_ring(*case) for case in CASES]


def test_two_processes_equal_one_device():
    ranks = dpkit.launch(every_case, 2, backend="gloo")
    for place, (causal, *_) in enumerate(CASES):
        assert largest([rank[place] for rank in ranks], causal) < 1e-14


# -- a model, whose leaves are its parameters


def gradients(parallel, steps=2):
    """Return the gradients of a transformer's parameters, of two steps."""
    device = rank_device() if parallel else torch.device("cpu")
    generator = torch.Generator().manual_seed(1)
    model = engines.transformer().to(device)
    found = []
    for _ in range(steps):
        words = torch.randint(
            0, engines.NUM_WORDS, (3, 17), generator=generator
        )
        x, y = (
            t.contiguous().to(device) for t in (words[:, :-1], words[:, 1:])
        )
        model.zero_grad()
        if parallel:
            in_parts(model, x, y)
        else:
            engines.loss_of(model(x), y).backward()
        found.append([p.grad.cpu() for p in model.parameters()])
    return found


def in_parts(model, x, y):
    use_cpu_kernel_in_ring()
    mesh = mesh_of_all()
    with context_parallel(mesh, buffers=[x, y], buffer_seq_dims=[1, 1]):
        loss = engines.loss_of(model(x), y) / mesh.size()
        loss.backward()
    for p in model.parameters():
        dist.all_reduce(p.grad)
    assert x.shape[1] == 16  # they are whole again


def check_gradients(ranks):
    for rank in ranks:
        for found, one in zip(rank, gradients(parallel=False), strict=True):
            for x, y in zip(found, one, strict=True):
                assert (x - y).abs().max() < 1e-14
                assert y.abs().max() > 1e-6


def test_a_model_in_parts():
    check_gradients(dpkit.sim.launch(gradients, 4, True))


def test_a_model_in_parts_in_processes():
    check_gradients(dpkit.launch(gradients, 2, True, backend="gloo"))


# -- ranks that are threads, each in a block of its own


def on_a_mesh_of_two_axes():
    """Attend in pairs of ranks, each pair with other numbers, twice."""
    mesh = init_device_mesh("sim", (2, 2), mesh_dim_names=("data", "parts"))
    number = 1 + mesh["data"].get_local_rank()
    found = []
    for causal in (True, False):
        # Ranks wait here, in a block and between two.
        pause = torch.zeros(1, device="sim")
        dist.all_reduce(pause)
        case = causal, causal, "allgather"
        found.append(in_ring(*case, mesh["parts"], number, pause))
    return number, found


def test_each_rank_has_its_mesh_and_its_block():
    attention, options = (
        F.scaled_dot_product_attention,
        dict(vars(_cp_options)),
    )
    ranks = dpkit.sim.launch(on_a_mesh_of_two_axes, 4)
    assert [number for number, _ in ranks] == [1, 1, 2, 2]
    for number, (causal, whole) in ranks:
        assert largest([causal], True, number) < 1e-13
        assert largest([whole], False, number) < 1e-13
    assert F.scaled_dot_product_attention is attention
    assert vars(_cp_options) == options


def halves(pair):
    generator = torch.Generator().manual_seed(2 + pair)
    return torch.randn(1, 2, 88, 8, generator=generator).bfloat16()


def inside_and_outside():
    """One pair attends on DTensors, while the other one is in its block.

    The length is one that no other test has: PyTorch keeps by shapes what its
    rules have said.
    """
    mesh = init_device_mesh("sim", (2, 2), mesh_dim_names=("data", "parts"))
    pause = torch.zeros(1, device="sim")
    pair = mesh["data"].get_local_rank()
    x = halves(pair).to("sim")
    if pair == 0:
        dist.all_reduce(pause)
        cut = distribute_tensor(x, mesh["parts"], [Shard(2)])
        out = F.scaled_dot_product_attention(cut, cut, cut, is_causal=True)
        dist.all_reduce(pause)
        return out.full_tensor().cpu()
    with context_parallel(mesh["parts"], buffers=[x], buffer_seq_dims=[2]):
        dist.all_reduce(pause)
        dist.all_reduce(pause)
        out = F.scaled_dot_product_attention(x, x, x, is_causal=True)
    (whole,) = context_parallel_unshard(mesh["parts"], [out], [2])
    return whole.cpu()


def test_rules_are_those_of_a_rank():
    with dpkit.sim.machine(accelerator="a100", hosts="per_device"):
        found = dpkit.sim.launch(inside_and_outside, 4)
    for rank, whole in enumerate(found):
        x = halves(rank // 2)
        one = F.scaled_dot_product_attention(x, x, x, is_causal=True)
        assert (whole - one).abs().max() < 0.02


def outside_while_others_are_inside():
    """Rank 0 attends alone, while ranks 1 and 2 are in their block."""
    rank = dist.get_rank()
    pair = dist.new_group([1, 2])
    x = torch.ones(1, 1, 8, 4, dtype=torch.float64, device="sim") * (rank + 1)
    pause = torch.zeros(1, device="sim")
    if rank == 0:
        dist.all_reduce(pause)
        out = F.scaled_dot_product_attention(x, x, x)
        dist.all_reduce(pause)
        return type(out).__name__, tuple(out.shape)
    use_cpu_kernel_in_ring()
    mesh = dist.device_mesh.DeviceMesh.from_group(pair, "sim")
    _cp_options.enable_load_balance = False
    with context_parallel(mesh, buffers=[x], buffer_seq_dims=[2]):
        dist.all_reduce(pause)
        out = F.scaled_dot_product_attention(x, x, x)
        dist.all_reduce(pause)
    return type(out).__name__, tuple(out.shape)


def test_who_is_not_in_a_block_attends_alone():
    found = dpkit.sim.launch(outside_while_others_are_inside, 3)
    shapes = [shape for _, shape in found]
    assert shapes == [(1, 1, 8, 4), (1, 1, 4, 4), (1, 1, 4, 4)]


# -- what is refused


def leaf_before():
    x = torch.zeros(1, 1, 8, 4, device=rank_device(), requires_grad=True)
    with context_parallel(mesh_of_all(), buffers=[x], buffer_seq_dims=[2]):
        pass


def test_a_buffer_that_requires_gradients_already():
    """PyTorch refuses it on every device, in the same words."""
    words = "cannot resize variables that require grad"
    with pytest.raises(RuntimeError, match=words):
        dpkit.sim.launch(leaf_before, 2)
    with pytest.raises(RuntimeError, match=words):
        dpkit.launch(leaf_before, 2, backend="gloo")


def masked():
    use_cpu_kernel_in_ring()
    _cp_options.enable_load_balance = False
    x = torch.zeros(1, 1, 8, 4, dtype=torch.float64, device="sim")
    mask = torch.zeros(1, 1, 4, 8, dtype=torch.float64, device="sim")
    with context_parallel(mesh_of_all(), buffers=[x], buffer_seq_dims=[2]):
        F.scaled_dot_product_attention(x, x, x, mask)


def test_a_mask():
    words = re.escape("no mask but is_causal=True (mask: (1, 1, 8, 8))")
    with pytest.raises(RuntimeError, match=words):
        dpkit.sim.launch(masked, 2)
