"""Selective recomputation, counted in a block of the mesh's Llama.

PyTorch keeps what a policy names, here products and attention, and computes
all else again in backward. Bytes are those of simulated devices.
"""

import functools
import gc
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import parallelize_module
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from dpbook.formulas.transformer import (
    GATHERED,
    RECOMPUTE,
    Transformer,
)
from dpbook.mesh.engines import plan_of_block
from dpbook.mesh.model import Block, Rotary, Sizes
from dpbook.planner.layouts import Layout
from dpbook.planner.networks import NETWORKS
from dpbook.planner.work import layer_counts
from dpkit import sim
from dpkit.processes import rank_device
from dpkit.runs.ranks import launch

ROWS = 2
SIZES = Sizes(width=256, blocks=1, heads=8, key_heads=8, inner=768, length=128)
FEW_KEYS = Sizes(
    width=256, blocks=1, heads=8, key_heads=4, inner=512, length=64
)
SUMS = 4  # bytes of a head, by which backward finds attention's weights


def keep_products_and_attention(_, operator, *args, **more):
    name = operator.name()
    if name.startswith("aten::mm") or "attention" in name:
        return CheckpointPolicy.MUST_SAVE
    return CheckpointPolicy.PREFER_RECOMPUTE


SELECTIVE = partial(
    create_selective_checkpoint_contexts, keep_products_and_attention
)


class Counted(NamedTuple):
    """What a rank keeps of a block, and the kernels of backward, if alone."""

    kept: int  #: bytes
    products: int = 0  #: products and attention
    others: int = 0


def run(sizes, recompute, tensor):
    """Run a block once on this rank."""
    device = rank_device()
    with torch.device("meta"):
        block = Block(sizes, Rotary(sizes)).to(torch.bfloat16)
    if tensor > 1:
        mesh = init_device_mesh("sim", (tensor,), mesh_dim_names=("tp",))
        parallelize_module(block, mesh, plan_of_block())
    block.to_empty(device=device)
    shape = ROWS, sizes.length // tensor, sizes.width
    x = torch.empty(
        shape, dtype=torch.bfloat16, device=device, requires_grad=True
    )
    compute = block._compute
    if recompute != "none":
        more = {}
        if recompute == "selective":
            more = {"context_fn": SELECTIVE}
        compute = partial(
            checkpoint, block._compute, use_reentrant=False, **more
        )
    compute(x * 1).sum().backward()
    block.zero_grad(set_to_none=True)
    x.grad = None
    before = torch.sim.memory_allocated(device)
    y = compute(x * 1)
    kept = torch.sim.memory_allocated(device) - before - y.nbytes
    if tensor > 1:  # one trace at a time
        y.sum().backward()
        return Counted(kept)
    with sim.trace() as timeline:
        y.sum().backward()
    kernels = [s for s in timeline.spans if s.kind == "compute"]
    products = sum(bool(s.flops) for s in kernels)
    return Counted(kept, products, len(kernels) - products)


@functools.cache
def counted(sizes, recompute, tensor=1):
    with sim.machine(num_devices=tensor, backing="meta", hosts="per_device"):
        found = launch(run, tensor, sizes, recompute, tensor)
    gc.collect()
    return found[0]


def model_of(sizes):
    return Transformer(
        layers=1,
        hidden=sizes.width,
        heads=sizes.heads,
        vocabulary=sizes.vocabulary,
        sequence=sizes.length,
        feed_forward=sizes.inner,
        key_heads=sizes.key_heads,
        gated=True,
        dropout=False,
    )


@pytest.mark.parametrize("tensor", [1, 4])
@pytest.mark.parametrize("sizes", [SIZES, FEW_KEYS])
def test_selective_keeps_what_the_formula_says(sizes, tensor):
    """Also on four devices, which keep the parts of two sums whole."""
    sums = SUMS * ROWS * sizes.length * sizes.heads / tensor
    expected = model_of(sizes).kept_bytes(
        ROWS, tensor=tensor, recompute="selective"
    )
    assert counted(sizes, "selective", tensor).kept - sums == expected


def test_full_keeps_the_input_alone():
    kept = model_of(SIZES).kept_bytes(ROWS, tensor=1, recompute="full")
    assert counted(SIZES, "full").kept == kept


def test_selective_runs_all_but_products_and_attention_again():
    """In backward: 7 products have 14, and attention one kernel.

    Full recomputation runs all of forward again, without its last product and
    sum, which backward needs no result of.
    """
    none, selective, full = (
        counted(SIZES, recompute) for recompute in RECOMPUTE
    )
    assert none.products == selective.products == 15
    assert full.products == 15 + 7
    assert selective.others == full.others > 1.5 * none.others
    again = [
        layer_counts(model_of(SIZES), Layout(1, recompute=recompute))
        for recompute in RECOMPUTE
    ]
    assert again[0].flops == again[1].flops < again[2].flops
    assert again[0].attention == again[1].attention != again[2].attention
    assert again[1].memory_traffic == again[2].memory_traffic
    assert again[1].num_kernels == again[2].num_kernels
    assert again[0].memory_traffic < again[1].memory_traffic


@pytest.mark.parametrize("sizes", [SIZES, FEW_KEYS])
def test_the_engines_keep_what_they_have_gathered(sizes):
    """All else that a block keeps, four devices share."""
    one, four = (counted(sizes, "none", t).kept for t in (1, 4))
    model = model_of(sizes)
    again, kept = (
        model.kept_bytes(ROWS, tensor=4, recompute="none", gathered=gathered)
        for gathered in GATHERED
    )
    assert four - one / 4 == kept - again > 0


def test_a_large_group_keeps_more_selectively_than_without():
    """The worked case of the module: a layer of 7B."""
    found = [
        [
            round(
                NETWORKS["7B"].kept_bytes(1, tensor=t, recompute=recompute)
                / 1e6
            )
            for recompute in RECOMPUTE
        ]
        for t in (1, 8)
    ]
    assert found == [[539, 415, 34], [67, 111, 4]]


@pytest.mark.parametrize(("gated", "again"), [(True, 30), (False, 7)])
def test_selective_launches_all_but_products_again(gated, again):
    model = replace(model_of(SIZES), gated=gated)
    once, twice = (
        layer_counts(model, Layout(1, recompute=recompute)).launches
        for recompute in ("none", "selective")
    )
    assert twice.forward.kernels - once.forward.kernels == again
    assert twice.forward.views == 2 * once.forward.views
