"""FlexAttention on simulated devices: values, gradients, time and memory."""

import math

import pytest
import torch
from torch import nn
from torch.nn.attention import flex_attention as flex
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint

import dpkit
from dpkit.sim.compiled import as_compiled
from dpkit.sim.hardware import ACCELERATORS
from dpkit.sim.hardware.costs import operation_seconds
from dpkit.sim.kernels import flex_blocks

LENGTH = 300  # of which a block of 128 leaves 44
WIDTH = 16
DOCUMENTS = torch.tensor([0] * 100 + [1] * 200)  # which each token is of
SEES = (DOCUMENTS[:, None] == DOCUMENTS) & torch.ones(
    LENGTH, LENGTH, dtype=torch.bool
).tril()


def causal(b, h, q, k):
    return q >= k


def near(b, h, q, k):
    return (q >= k) & (q - k < 64)


@pytest.fixture
def device():
    return dpkit.devices(1, "sim")[0]


@pytest.fixture
def given(device):
    """Queries of four heads, keys and values of two, for two examples."""
    torch.manual_seed(5)
    return [
        torch.randn(
            2, heads, LENGTH, WIDTH, dtype=torch.float64, device=device
        ).requires_grad_()
        for heads in (4, 2, 2)
    ]


def mask_of(documents):
    """Return the block mask of queries that see their document's past."""

    def sees(b, h, q, k):
        return (documents[q] == documents[k]) & (q >= k)

    return flex.create_block_mask(
        sees, None, None, LENGTH, LENGTH, device=documents.device
    )


def on_cpu(tensors):
    return [x.detach().cpu().requires_grad_() for x in tensors]


def check_equal(run, given, expected, leaves):
    """Check an output and its gradients against those of the CPU.

    Args:
        run: What computes the output from simulated tensors.
        given: These tensors.
        expected: The output on the CPU.
        leaves: The same tensors there.
    """
    weights = torch.randn_like(expected)
    (expected * weights).sum().backward()
    out = run(*given)
    (out * weights.to(out.device)).sum().backward()
    torch.testing.assert_close(out.cpu(), expected)
    for ours, theirs in zip(given, leaves, strict=True):
        torch.testing.assert_close(ours.grad.cpu(), theirs.grad)


WAYS = {"eagerly": lambda f: f, "compiled": as_compiled}


@pytest.mark.parametrize("way", WAYS)
def test_documents_of_groups_of_heads(device, given, way):
    mask = mask_of(DOCUMENTS.to(device))
    run = WAYS[way](flex.flex_attention)
    leaves = on_cpu(given)
    expected = scaled_dot_product_attention(*leaves, SEES, enable_gqa=True)
    check_equal(
        lambda *x: run(*x, block_mask=mask, enable_gqa=True),
        given,
        expected,
        leaves,
    )


@pytest.mark.parametrize("way", WAYS)
def test_a_score_of_its_own_with_a_bias_that_learns(device, given, way):
    """The bias is no argument: ``score_mod`` finds it where it is defined."""
    torch.manual_seed(6)
    bias = torch.randn(2, 4, dtype=torch.float64, device=device)
    given = [*given[:1], *(x.repeat_interleave(2, 1) for x in given[1:])]
    given = [x.detach().requires_grad_() for x in (*given, bias)]
    leaves = on_cpu(given)

    def attend(query, key, value, bias):
        def score_mod(score, b, h, q, k):
            return 3 * torch.tanh(score / 3) + bias[b, h]

        return WAYS[way](flex.flex_attention)(query, key, value, score_mod)

    query, key, value, bias_there = leaves
    scores = query @ key.mT / math.sqrt(WIDTH)
    scores = 3 * torch.tanh(scores / 3) + bias_there[:, :, None, None]
    expected = scores.softmax(-1) @ value
    check_equal(attend, given, expected, leaves)


def test_the_values_are_those_of_the_cpu(device, given, monkeypatch):
    """To the last bit, forward: backward PyTorch has none on the CPU."""
    monkeypatch.setattr(flex, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)
    given = [x.detach().float() for x in given]
    options = {"enable_gqa": True, "return_aux": flex.AuxRequest(lse=True)}
    mask = mask_of(DOCUMENTS.to(device))
    ours, sums = flex.flex_attention(*given, block_mask=mask, **options)
    there = [x.cpu() for x in given]
    mask = mask_of(DOCUMENTS)
    theirs, sums_there = flex.flex_attention(
        *there, block_mask=mask, **options
    )
    assert torch.equal(ours.cpu(), theirs)
    assert torch.equal(sums.lse.cpu(), sums_there.lse)


def test_the_cpu_has_its_own_rules_again(device, given):
    flex.flex_attention(*given, enable_gqa=True)
    with pytest.raises(NotImplementedError, match="backward on CPU"):
        flex.flex_attention(*on_cpu(given), enable_gqa=True)
    assert flex._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG is False


def test_a_call_that_is_refused_leaves_nothing_switched(device, given):
    """PyTorch refuses it between our check and the operator."""
    with pytest.raises(ValueError, match="same number of heads"):
        flex.flex_attention(*given)
    with pytest.raises(ValueError, match="Invalid BACKEND"):
        flex.flex_attention(
            *given, enable_gqa=True, kernel_options={"BACKEND": "none"}
        )
    assert flex._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG is False
    with pytest.raises(NotImplementedError, match="backward on CPU"):
        flex._validate_device(*on_cpu(given))
    flex.flex_attention(*given, enable_gqa=True)


def test_compiled_it_leaves_out_what_the_block_mask_does(device):
    """As on a GPU: eagerly ``mask_mod`` alone counts, here it sees all.

    The first block of queries sees the first block of keys, the second the
    second one.
    """
    torch.manual_seed(7)
    x = torch.randn(1, 1, 256, WIDTH, device=device)
    one = torch.ones(1, 1, 2, dtype=torch.int32, device=device)
    places = torch.tensor([[[[0, 0], [1, 0]]]], dtype=torch.int32)
    mask = flex.BlockMask.from_kv_blocks(one, places.to(device))
    out = as_compiled(flex.flex_attention)(x, x, x, block_mask=mask)
    halves = [
        scaled_dot_product_attention(half, half, half)
        for half in x.cpu().split(128, 2)
    ]
    torch.testing.assert_close(out.cpu(), torch.cat(halves, 2))


def test_a_long_sequence_is_computed_piece_by_piece(
    device, given, monkeypatch
):
    mask = mask_of(DOCUMENTS.to(device))
    monkeypatch.setattr(flex_blocks, "MOST_SCORES", 4 * 128 * LENGTH)
    blocks = flex_blocks.blocks_of(mask.as_tuple(), *given[:2])
    found = list(flex_blocks.parts_of_scores(blocks, *given[:2]))
    assert [
        (p.queries.start, p.keys.stop) for p in found if not p.example
    ] == [
        (0, 128),
        (128, 256),
        (256, 384),
    ]
    test_documents_of_groups_of_heads(device, given, "compiled")


def spans_of(run):
    with dpkit.sim.trace() as timeline:
        run()
    return [span for span in timeline.spans if span.device == "sim:0"]


def test_compiled_it_is_one_kernel_that_keeps_no_scores(device, given):
    scores = 2 * 4 * LENGTH**2 * 8
    mask = mask_of(DOCUMENTS.to(device))

    def peak(way):
        before = torch.sim.memory_allocated(device)
        torch.sim.reset_peak_memory_stats(device)
        run = WAYS[way](flex.flex_attention)
        out = run(*given, block_mask=mask, enable_gqa=True)
        kept = torch.sim.memory_allocated(device) - before
        out.sum().backward()
        return kept, torch.sim.max_memory_allocated(device) - before

    kept, most = peak("eagerly")
    assert kept < scores < most
    kept, most = peak("compiled")
    assert kept == (2 * 4 * LENGTH) * 8 * (WIDTH + 1)  # outputs and sums
    assert most < scores


def test_a_kernel_takes_its_blocks_time(device):
    """Six of nine blocks with causality, five of nine where far is unseen."""
    with dpkit.sim.machine(accelerator="a100"):
        _check_blocks(device)


def _check_blocks(device):
    x = torch.randn(1, 64, LENGTH, 256, device=device).bfloat16()
    run = as_compiled(flex.flex_attention)
    for mask_mod, blocks in ((causal, 6), (near, 5), (None, 9)):
        mask = mask_mod and flex.create_block_mask(
            mask_mod, None, None, LENGTH, LENGTH, device=device
        )
        *_, span = spans_of(lambda mask=mask: run(x, x, x, block_mask=mask))
        assert span.name == "flex_attention"
        assert span.flops == 64 * 4 * 256 * blocks * 128**2
        assert span.num_bytes == 4 * x.nbytes + 64 * 2 * LENGTH * 4
        seconds = operation_seconds(
            ACCELERATORS["a100"],
            flops=span.flops / 0.9,
            num_bytes=0,
            dtype="bfloat16",
            kind="flash",
        )
        assert span.end - span.start == pytest.approx(seconds)


def test_backward_takes_five_products_for_two(device):
    x = torch.randn(1, 1, LENGTH, 64, device=device).requires_grad_()
    run = as_compiled(flex.flex_attention)
    spans = spans_of(lambda: run(x, x, x).sum().backward())
    flops = {s.name: s.flops for s in spans if s.name.startswith("flex")}
    assert flops["flex_attention_backward"] == 2.5 * flops["flex_attention"]


def test_heads_with_masks_of_their_own(device):
    """Head 0 sees the past, head 1 all: 6 and 9 blocks, for 2 examples."""
    x = torch.randn(2, 2, LENGTH, 64, device=device)

    def sees(b, h, q, k):
        return (q >= k) | (h == 1)

    mask = flex.create_block_mask(sees, None, 2, LENGTH, LENGTH, device=device)
    run = as_compiled(flex.flex_attention)
    (span,) = spans_of(lambda: run(x, x, x, block_mask=mask))
    assert span.flops == 2 * (6 + 9) * 4 * 64 * 128**2


def test_without_values_all_blocks_are_charged():
    with dpkit.sim.machine(backing="meta", num_devices=1):
        x = torch.ones(1, 1, 4096, 64, device="sim:0")
        mask = flex.create_block_mask(
            causal, None, None, 4096, 4096, device="sim:0"
        )
        run = as_compiled(flex.flex_attention)
        with pytest.warns(UserWarning, match="charged for all blocks"):
            (span,) = spans_of(lambda: run(x, x, x, block_mask=mask))
        assert span.flops == 4 * 64 * 4096**2


class Attention(nn.Module):
    def forward(self, x):
        return flex.flex_attention(x, x, x)


def compiled_forms():
    net = Attention()
    net.compile()
    return [
        torch.compile(flex.flex_attention, dynamic=False),
        lambda x, *_: torch.compile(Attention())(x),
        lambda x, *_: net(x),
    ]


def test_a_program_for_cuda_compiles_it_in_each_way():
    with dpkit.sim.as_cuda():
        x = torch.ones(1, 2, LENGTH, WIDTH, device="cuda")
        names = [s.name for s in spans_of(lambda: Attention()(x))]
        assert names.count("bmm") == 2
        for run in compiled_forms():
            names = [s.name for s in spans_of(lambda run=run: run(x, x, x))]
            assert "flex_attention" in names
            assert "bmm" not in names


def test_autocast_reaches_it(device, given):
    query = given[0].detach().float()
    with torch.autocast("sim", dtype=torch.bfloat16):
        out = flex.flex_attention(query, query, query)
    assert out.dtype == torch.bfloat16


@pytest.mark.parametrize("way", WAYS)
def test_no_example_at_all(device, way):
    x = torch.ones(0, 2, 5, 4, device=device).requires_grad_()
    out = WAYS[way](flex.flex_attention)(x, x, x)
    out.sum().backward()
    assert out.shape == x.grad.shape == (0, 2, 5, 4)


class Checkpointed(nn.Module):
    """Attention whose forward is computed a second time in backward."""

    def __init__(self):
        super().__init__()
        self.attention = Attention()

    def forward(self, x):
        return checkpoint(self.attention, x, use_reentrant=False)


@pytest.mark.parametrize("way", ["function", "method"])
def test_compiled_it_may_be_computed_again(way):
    with dpkit.sim.as_cuda():
        x = torch.randn(1, 2, LENGTH, WIDTH, device="cuda").requires_grad_()
        Checkpointed()(x).sum().backward()
        expected = x.grad
        x.grad = None
        net = Checkpointed()
        if way == "method":
            net.compile()
        else:
            net = torch.compile(net)
        spans = spans_of(lambda: net(x).sum().backward())
        names = [span.name for span in spans]
        assert names.count("flex_attention") == 2
        assert names.count("flex_attention_backward") == 1
        assert "bmm" not in names
        torch.testing.assert_close(x.grad, expected)
