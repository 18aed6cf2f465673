"""Causal attention is charged for the blocks of scores that are computed."""

import pytest
import torch
from torch.nn import functional as F
from torch.utils.flop_counter import flop_registry

import dpkit
from dpkit.sim.hardware.causal_attention import (
    CPU_SIDE,
    GPU_SIDE,
    SMALL_SIDE,
    block_side,
    num_scores,
)

LENGTHS = [
    (1, 1), (7, 7), (64, 64), (65, 65), (128, 128), (129, 129), (300, 300),
    (512, 512), (513, 513), (1024, 1024), (1000, 300), (300, 1000), (1, 500),
]  # fmt: skip
# Queries and keys of the blocks of PyTorch's kernels on an A100, by the
# sources that the module names: the kernel, whether it is backward, a size of
# heads. On a CPU they follow the queries, up to 256 by 512.
BLOCKS = {
    ("flash", False, 64): (128, 128),
    ("flash", False, 128): (128, 64),
    ("flash", False, 256): (128, 64),
    ("flash", True, 64): (128, 128),
    ("flash", True, 128): (64, 128),
    ("flash", True, 256): (64, 64),
    ("efficient", False, 64): (64, 64),
    ("efficient", False, 128): (64, 128),
    ("efficient", False, 256): (32, 128),
    ("efficient", True, 64): (64, 64),
    ("efficient", True, 65): (128, 128),
    ("efficient", True, 128): (128, 128),
    ("efficient", True, 256): (128, 64),
    ("cpu", False, 64): (32, 512),
    ("cpu", False, 128): (64, 512),
    ("cpu", True, 256): (256, 512),
}


def by_mask(queries, keys, block):
    """Count the scores of all blocks in which the mask leaves one."""
    seen = torch.ones(queries, keys, dtype=torch.bool).tril()
    return sum(
        part.numel()
        for rows in seen.split(block[0], dim=0)
        for part in rows.split(block[1], dim=1)
        if part.any()
    )


@pytest.mark.parametrize("side", [3, SMALL_SIDE, GPU_SIDE, CPU_SIDE])
@pytest.mark.parametrize(("queries", "keys"), LENGTHS)
def test_scores_are_those_of_blocks_that_are_not_all_masked(
    queries, keys, side
):
    expected = by_mask(queries, keys, (side, side))
    assert num_scores(queries, keys, side=side) == expected


@pytest.mark.parametrize(("kernel", "backward", "size"), BLOCKS)
@pytest.mark.parametrize("n", [1, 65, 129, 300, 512, 1024])
def test_the_blocks_of_kernels_compute_as_many_as_squares(
    kernel, backward, size, n
):
    expected = by_mask(n, n, BLOCKS[kernel, backward, size])
    assert (
        num_scores(n, n, side=block_side(kernel, backward, size)) == expected
    )


@pytest.mark.parametrize(("side", "n"), [(128, 2048), (64, 512), (512, 8192)])
def test_the_share_of_whole_blocks(side, n):
    """As the module says: 1/2, and half a block of each row besides."""
    assert num_scores(n, n, side=side) / n**2 == 1 / 2 + side / (2 * n)


@pytest.fixture
def device(request):
    """A device without numbers: of an A100, or of what the test asks for."""
    accelerator = getattr(request, "param", "a100")
    with dpkit.sim.machine(
        accelerator=accelerator,
        backing="meta",
        num_devices=1,
        memory_bytes=2**40,
    ):
        (found,) = dpkit.devices(1, kind="sim")
        yield found


def flops_of(run):
    with dpkit.sim.trace() as timeline:
        run()
    return [
        s.flops for s in timeline.spans if "attention" in s.name and s.flops
    ]


def operands(device, q, k, heads=(4, 4), size=128, dtype=torch.bfloat16):
    shapes = (2, heads[0], q, size), *[(2, heads[1], k, size)] * 2
    return [
        torch.empty(*s, dtype=dtype, device=device, requires_grad=True)
        for s in shapes
    ]


def both_ways(qkv, **options):
    """Return the flops of attention forward, and backward."""
    found = []
    (forward,) = flops_of(
        lambda: found.append(F.scaled_dot_product_attention(*qkv, **options))
    )
    (y,) = found
    (backward,) = flops_of(lambda: y.backward(torch.empty_like(y)))
    return forward, backward


def expected(q, k, blocks, heads=4, size=128):
    """Forward: two products of each score; backward: five."""
    scores = [by_mask(q, k, block) for block in blocks]
    each = 2 * 2 * heads * size
    return 2 * each * scores[0], 5 * each * scores[1]


@pytest.mark.parametrize(
    ("size", "blocks"),
    [
        (64, ((128, 128), (128, 128))),
        (128, ((128, 64), (64, 128))),
        (160, ((128, 64), (64, 64))),
    ],
)
@pytest.mark.parametrize("n", [96, 200, 1024])
def test_a_gpu_computes_the_blocks_of_flash_attention(n, size, blocks, device):
    found = both_ways(operands(device, n, n, size=size), is_causal=True)
    assert found == expected(n, n, blocks, size=size)


@pytest.mark.parametrize(
    ("q", "k", "dtype"),
    [
        (500, 500, torch.float32),
        (500, 700, torch.bfloat16),
        (700, 500, torch.float16),
    ],
)
def test_what_flash_attention_does_not_take_has_the_other_kernel(
    q, k, dtype, device
):
    """In 32 bits, or with more keys than queries or fewer."""
    qkv = operands(device, q, k, size=64, dtype=dtype)
    blocks = ((64, 64),) * 2
    assert both_ways(qkv, is_causal=True) == expected(q, k, blocks, size=64)


def test_what_cuda_composes_computes_all_scores(device):
    """No kernel of CUDA takes 64 bits; the CPU's does, and fills in."""
    qkv = operands(device, 700, 700, dtype=torch.float64)
    assert both_ways(qkv, is_causal=True) == both_ways(qkv)


@pytest.mark.parametrize("device", ["laptop-cpu"], indirect=True)
@pytest.mark.parametrize(("n", "rows"), [(150, 32), (600, 64), (1100, 256)])
def test_a_cpu_computes_the_blocks_of_its_own_kernel(n, rows, device):
    blocks = ((rows, 512),) * 2
    found = both_ways(operands(device, n, n), is_causal=True)
    assert found == expected(n, n, blocks)


def counted_by_pytorch(qkv):
    q, k, v = qkv
    name = "_scaled_dot_product_flash_attention_for_cpu"
    packets = [
        getattr(torch.ops.aten, name + end) for end in ("", "_backward")
    ]
    forward, backward = (flop_registry[packet] for packet in packets)
    return forward(q, k, v, out_val=None), backward(q, q, k, v, out_val=None)


@pytest.mark.parametrize(("q", "k"), LENGTHS)
def test_full_attention_takes_what_pytorch_counts(q, k, device):
    qkv = operands(device, q, k)
    forward, backward = counted_by_pytorch(qkv)
    assert both_ways(qkv) == (forward, backward)
    assert backward == 2.5 * forward


@pytest.mark.parametrize("n", [1, 20, 64])
def test_one_block_takes_as_much_as_all(n, device):
    qkv = operands(device, n, n)
    assert both_ways(qkv, is_causal=True) == both_ways(qkv)


def test_heads_in_groups_take_what_all_heads_take(device):
    few = operands(device, 700, 700, heads=(8, 2))
    all_heads = operands(device, 700, 700, heads=(8, 8))
    for causal in (False, True):
        assert both_ways(few, is_causal=causal, enable_gqa=True) == both_ways(
            all_heads, is_causal=causal
        )


def test_a_mask_that_is_given_leaves_no_block_out(device):
    qkv = operands(device, 700, 700)
    seen = torch.ones(700, 700, dtype=torch.bool, device=device).tril()
    assert both_ways(qkv, attn_mask=seen) == both_ways(qkv)


def test_a_mask_beside_the_causal_one_is_refused_as_on_the_cpu(device):
    for where in (device, torch.device("cpu")):
        x = torch.ones(1, 2, 8, 16, device=where)
        mask = torch.zeros(8, 8, device=where)
        with pytest.raises(RuntimeError, match="Explicit attn_mask should"):
            F.scaled_dot_product_attention(
                x, x, x, attn_mask=mask, is_causal=True
            )


def test_kernels_that_a_program_calls_by_name(device):
    """cuDNN's blocks are not known, and taken to be those of the other."""
    n, aten = 1024, torch.ops.aten
    qkv = operands(device, n, n)
    flash, efficient = (128, 64), (64, 128)
    for run, block in (
        (
            lambda: aten._scaled_dot_product_flash_attention(
                *qkv, 0.0, is_causal=True
            ),
            flash,
        ),
        (
            lambda: aten._scaled_dot_product_cudnn_attention(
                *qkv, None, True, 0.0, True
            ),
            flash,
        ),
        (
            lambda: aten._scaled_dot_product_efficient_attention(
                *qkv, None, True, 0.0, True
            ),
            efficient,
        ),
    ):
        (found,) = flops_of(run)
        assert found == expected(n, n, (block, block))[0]


def seconds(run):
    with dpkit.sim.trace() as timeline:
        run()
    return max(s.end - s.start for s in timeline.spans if s.kind == "compute")


def test_causal_attention_of_long_sequences_takes_half_the_time(device):
    x, _, _ = operands(device, 8192, 8192, heads=(32, 32))
    attend = F.scaled_dot_product_attention
    full = seconds(lambda: attend(x, x, x))
    causal = seconds(lambda: attend(x, x, x, is_causal=True))
    assert 0.5 * full < causal < 0.53 * full
