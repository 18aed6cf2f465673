"""Attention: which kernel CUDA takes, what it costs, what it computes."""

import pytest
import torch
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import dpkit
from dpkit.sim.kernels import attention_values

FLASH, EFFICIENT, CUDNN = (
    f"_scaled_dot_product_{kernel}_attention"
    for kernel in ("flash", "efficient", "cudnn")
)
ON_CPU = f"{FLASH}_for_cpu"
BF16, HALF, FLOAT, DOUBLE = (
    torch.bfloat16,
    torch.float16,
    torch.float32,
    torch.float64,
)


def operands(
    device, dtype=BF16, q=64, k=64, heads=(4, 4), size=64, value_size=None
):
    shapes = (2, heads[0], q, size), (2, heads[1], k, size)
    shapes = *shapes, (2, heads[1], k, value_size or size)
    return [
        torch.empty(shape, dtype=dtype, device=device, requires_grad=True)
        for shape in shapes
    ]


def name_of(run):
    """Return what attention runs as: one operator, or products."""
    with dpkit.sim.trace() as timeline:
        run()
    names = [s.name for s in timeline.spans if s.flops]
    return names[0] if len(names) == 1 else names


@pytest.fixture
def machine():
    """Return what makes a simulated machine without numbers."""

    def make(accelerator):
        return dpkit.sim.machine(
            accelerator=accelerator, backing="meta", num_devices=1
        )

    dpkit.sim.register()
    return make


# -- which kernel

COMPOSED = ["bmm", "bmm"]


@pytest.mark.parametrize(
    ("accelerator", "dtype", "kernel"),
    [
        ("v100", HALF, EFFICIENT),
        ("v100", FLOAT, EFFICIENT),
        ("v100", BF16, ON_CPU),  # CUDA has no kernel, and the CPU has one
        ("p100", HALF, EFFICIENT),
        ("k80", FLOAT, ON_CPU),
        ("a100", HALF, FLASH),
        ("a100", BF16, FLASH),
        ("a100", FLOAT, EFFICIENT),
        ("a100", DOUBLE, ON_CPU),
        ("rtx4090", BF16, FLASH),
        ("h100", BF16, CUDNN),
        ("h200", HALF, CUDNN),
        ("b200", BF16, CUDNN),
        ("h100", FLOAT, EFFICIENT),
        ("laptop-cpu", BF16, ON_CPU),
    ],
)
def test_each_card_takes_its_own(accelerator, dtype, kernel, machine):
    with machine(accelerator):
        qkv = operands("sim:0", dtype)
        found = name_of(lambda: F.scaled_dot_product_attention(*qkv))
    assert found == kernel


@pytest.mark.parametrize(
    ("accelerator", "given", "options", "kernel"),
    [
        ("a100", {}, {"dropout_p": 0.1}, FLASH),
        ("a100", {"q": 65}, {"is_causal": True}, EFFICIENT),
        ("a100", {"q": 65}, {}, FLASH),
        ("a100", {"heads": (4, 2)}, {"enable_gqa": True}, FLASH),
        ("a100", {"size": 256}, {}, FLASH),
        ("a100", {"size": 264}, {}, EFFICIENT),
        ("a100", {"value_size": 32}, {}, EFFICIENT),
        ("a100", {"size": 36, "value_size": 40}, {}, COMPOSED),
        ("a100", {"dtype": FLOAT, "size": 36}, {}, EFFICIENT),
        ("v100", {"dtype": FLOAT, "size": 3}, {"dropout_p": 0.1}, EFFICIENT),
        ("rtx4090", {"size": 200}, {}, EFFICIENT),  # to be trained
        ("rtx4090", {"size": 232}, {}, FLASH),
        ("rtx4090", {"size": 232}, {"dropout_p": 0.1}, EFFICIENT),
        ("h100", {}, {"dropout_p": 0.1}, FLASH),
        ("h100", {}, {"dropout_p": 0.125}, CUDNN),
        ("h100", {"size": 160}, {}, FLASH),
        ("h100", {"size": 192, "value_size": 128}, {}, CUDNN),
        ("h100", {"q": 65}, {"is_causal": True}, CUDNN),
        ("h100", {"k": 1}, {}, FLASH),
        ("h100", {}, {"dropout_p": 1.0}, CUDNN),
    ],
)
def test_what_is_asked_for_decides(
    accelerator, given, options, kernel, machine
):
    with machine(accelerator):
        qkv = operands("sim:0", **given)
        found = name_of(
            lambda: F.scaled_dot_product_attention(*qkv, **options)
        )
    assert found == kernel


@pytest.mark.parametrize("kind", ["boolean", "added", "learnt"])
@pytest.mark.parametrize(
    ("accelerator", "kernel"), [("a100", EFFICIENT), ("h100", CUDNN)]
)
def test_a_mask_is_not_for_flash_attention(accelerator, kernel, kind, machine):
    """And cuDNN has no gradient of one."""
    with machine(accelerator):
        qkv = operands("sim:0")
        mask = torch.zeros(64, 64, dtype=BF16, device="sim:0")
        mask = mask > 0 if kind == "boolean" else mask
        mask.requires_grad_(kind == "learnt")
        found = name_of(lambda: F.scaled_dot_product_attention(*qkv, mask))
    assert found == (EFFICIENT if kind == "learnt" else kernel)


def test_a_mask_of_three_dimensions_is_not_for_cudnn(machine):
    with machine("h100"):
        qkv = operands("sim:0")
        mask = torch.zeros(4, 64, 64, dtype=BF16, device="sim:0")
        found = name_of(lambda: F.scaled_dot_product_attention(*qkv, mask))
    assert found == EFFICIENT


@pytest.mark.parametrize(
    ("mode", "kernel"), [("strict", FLASH), ("warns", CUDNN)]
)
def test_cudnn_is_not_deterministic(mode, kernel, machine):
    with machine("h100"):
        qkv = operands("sim:0")
        torch.use_deterministic_algorithms(True, warn_only=mode == "warns")
        try:
            found = name_of(lambda: F.scaled_dot_product_attention(*qkv))
        finally:
            torch.use_deterministic_algorithms(False)
    assert found == kernel


@pytest.mark.parametrize(
    ("offset", "expected"), [(4, EFFICIENT), (1, ON_CPU), (2, ON_CPU)]
)
def test_numbers_that_begin_elsewhere(offset, expected, machine):
    """An A100's kernel reads four numbers of 32 bits at once."""
    with machine("a100"):
        x = torch.empty(2 * 4 * 64 * 64 + offset, device="sim:0")
        x = x[offset:].view(2, 4, 64, 64)
        found = name_of(lambda: F.scaled_dot_product_attention(x, x, x))
    assert found == expected


def test_what_a_program_turns_off_is_not_taken(machine):
    with machine("a100"):
        qkv = operands("sim:0")

        def attend():
            F.scaled_dot_product_attention(*qkv)

        order = [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.FLASH_ATTENTION]
        with sdpa_kernel(order, set_priority=True):
            assert name_of(attend) == EFFICIENT
        mask = torch.zeros(64, 64, dtype=BF16, device="sim:0")
        with (
            sdpa_kernel(SDPBackend.FLASH_ATTENTION),
            pytest.raises(RuntimeError, match="No available kernel"),
        ):
            F.scaled_dot_product_attention(*qkv, mask)

        with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
            assert name_of(attend) == EFFICIENT
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            assert name_of(attend) == CUDNN
        with sdpa_kernel(SDPBackend.MATH):
            assert name_of(attend) == COMPOSED
        assert name_of(attend) == FLASH


# -- what it costs


def cost(accelerator, machine, dropout_p):
    with machine(accelerator):
        qkv = operands("sim:0", q=700, k=700)
        torch.sim.reset_peak_memory_stats("sim:0")
        with dpkit.sim.trace() as timeline:
            y = F.scaled_dot_product_attention(*qkv, dropout_p=dropout_p)
            y.backward(torch.empty_like(y))
        spans = [s for s in timeline.spans if s.flops]
        seconds = [s.end - s.start for s in spans]
        peak = torch.sim.max_memory_allocated("sim:0")
        return [s.name for s in spans], seconds, peak


@pytest.mark.parametrize("dropout_p", [0.1, 0.5])
def test_dropout_costs_nothing_besides(dropout_p, machine):
    """In time and in memory, forward and backward."""
    names, seconds, peak = cost("a100", machine, dropout_p)
    assert names == [FLASH, f"{FLASH}_backward"]
    without = cost("a100", machine, 0.0)
    assert (names, pytest.approx(seconds), peak) == without


@pytest.mark.parametrize("dropout_p", [0.0, 0.5])
@pytest.mark.parametrize(
    ("accelerator", "dtype"),
    [("a100", BF16), ("h100", BF16), ("v100", FLOAT), ("v100", DOUBLE)],
)
def test_numbers_change_neither_time_nor_memory(accelerator, dtype, dropout_p):
    def run(backing):
        machine = {"accelerator": accelerator, "num_devices": 1}
        with dpkit.sim.machine(**machine, backing=backing):
            qkv = operands("sim:0", dtype, q=40, k=40, size=16)
            torch.sim.reset_peak_memory_stats("sim:0")
            with dpkit.sim.trace() as timeline:
                y = F.scaled_dot_product_attention(*qkv, dropout_p=dropout_p)
                y.backward(torch.empty_like(y))
            times = [(s.name, s.start, s.end) for s in timeline.spans]
            return times, torch.sim.max_memory_allocated("sim:0"), y.stride()

    dpkit.sim.register()
    assert run("cpu") == run("meta")


# -- what it computes

CLOSE = {DOUBLE: 1e-12, FLOAT: 1e-5, BF16: 0.02}


def attend(xs, device, mask=None, learns=False, **options):
    """Return the output, and the gradients of all that has one."""
    qkv = [x.detach().to(device).requires_grad_() for x in xs[:3]]
    leaves = list(qkv)
    if mask is not None:
        mask = mask.to(device)
        if learns:
            leaves.append(mask.requires_grad_())
    out = F.scaled_dot_product_attention(*qkv, mask, **options)
    out.backward(xs[3].to(device))
    return [x.detach().cpu() for x in (out, *[x.grad for x in leaves])]


def random_operands(dtype, heads=(4, 4), q=33, k=33, size=16):
    torch.manual_seed(0)
    queries, keys = (2, heads[0], q, size), (2, heads[1], k, size)
    shapes = queries, keys, keys, queries
    return [torch.randn(shape, dtype=dtype) for shape in shapes]


@pytest.fixture(params=["v100", "a100", "h100"])
def numbers(request):
    """A machine with numbers, of each card in turn."""
    dpkit.sim.register()
    with dpkit.sim.machine(accelerator=request.param, num_devices=2):
        yield request.param


@pytest.mark.parametrize("dtype", [FLOAT, BF16, DOUBLE])
@pytest.mark.parametrize("causal", [False, True])
def test_it_equals_the_cpu_to_the_bit(dtype, causal, numbers):
    xs = random_operands(dtype)
    expected = attend(xs, "cpu", is_causal=causal)
    found = attend(xs, "sim:1", is_causal=causal)
    for x, y in zip(found, expected, strict=True):
        assert torch.equal(x, y)


CASES = {
    "plain": ({}, {}),
    "causal": ({}, {"is_causal": True}),
    "scaled": ({}, {"scale": 0.3}),
    "more keys": ({"k": 50}, {"is_causal": True}),
    "fewer keys": ({"k": 20}, {}),
    "heads in groups": ({"heads": (4, 2)}, {"enable_gqa": True}),
}


@pytest.mark.parametrize("name", CASES)
def test_all_scores_at_once_are_as_right_as_a_kernel(
    name, numbers, monkeypatch
):
    """Where the numbers are on a GPU, it is computed in this way."""
    given, options = CASES[name]
    xs = random_operands(FLOAT, **given)
    expected = attend(xs, "cpu", **options)
    monkeypatch.setattr(attention_values, "_is_one_kernel", lambda _: False)
    for x, y in zip(attend(xs, "sim:1", **options), expected, strict=True):
        assert (x - y).abs().max() < CLOSE[FLOAT]


@pytest.mark.parametrize("shape", [(33, 33), (2, 1, 33, 33), (1, 4, 1, 33)])
def test_a_mask_that_learns(shape, numbers):
    xs, mask = random_operands(FLOAT), torch.randn(shape)
    if len(shape) == 2:
        alone = mask.to("sim:1").requires_grad_()
        q, k, v = (x.to("sim:1") for x in xs[:3])
        out = F.scaled_dot_product_attention(q, k, v, alone)
        out.backward(xs[3].to("sim:1"))
        *_, expected = attend(xs, "cpu", mask.clone(), learns=True)
        assert (alone.grad.cpu() - expected).abs().max() < CLOSE[FLOAT]
    expected = attend(xs, "cpu", mask.clone(), learns=True)
    found = attend(xs, "sim:1", mask.clone(), learns=True)
    assert len(found) == 5
    for x, y in zip(found, expected, strict=True):
        assert x.shape == y.shape
        assert (x - y).abs().max() < CLOSE[FLOAT]


def test_a_query_that_sees_no_key_is_zero(numbers, monkeypatch):
    monkeypatch.setattr(attention_values, "_is_one_kernel", lambda _: False)
    xs = random_operands(FLOAT)
    mask = torch.ones(33, 33, dtype=torch.bool)
    mask[5] = False
    out, *gradients = attend(xs, "sim:1", mask)
    assert not out[:, :, 5].any()
    assert all(x.isfinite().all() for x in gradients)


def with_weights(xs, weights):
    """Attend with weights that are given, before dropout; differentiate."""
    q, k, v = (x.detach().clone().requires_grad_() for x in xs[:3])
    scores = q @ k.mT * q.shape[-1] ** -0.5
    out = (scores.softmax(-1) * weights) @ v
    out.backward(xs[3])
    return [x.detach() for x in (out, q.grad, k.grad, v.grad)]


@pytest.mark.parametrize("dropout_p", [0.25, 0.5])
def test_gradients_belong_to_the_weights_that_were_dropped(dropout_p, numbers):
    """The weights show as outputs where the values are unit vectors."""
    q, k, *_ = random_operands(FLOAT, size=36)
    unit = torch.eye(33, 36).expand(2, 4, 33, 36)
    torch.manual_seed(3)
    weights, *_ = attend([q, k, unit, unit], "sim:1", dropout_p=dropout_p)
    kept = (weights[..., :33] != 0) / (1 - dropout_p)
    assert 0.5 < kept.mean() < 1.5
    xs = random_operands(FLOAT, size=36)
    torch.manual_seed(3)
    found = attend(xs, "sim:1", dropout_p=dropout_p)
    for x, y in zip(found, with_weights(xs, kept), strict=True):
        assert (x - y).abs().max() < CLOSE[FLOAT]


def test_a_rate_of_one_drops_all(numbers):
    for x in attend(random_operands(FLOAT), "sim:1", dropout_p=1.0):
        assert not x.any()


WRONG = {
    "dtypes": lambda q: ((q, q.half(), q), {}),
    "dimensions": lambda q: ((q[0, 0, 0], q, q), {}),
    "a mask of integers": lambda q: ((q, q, q, q[0, 0].long()), {}),
    "a mask beside": lambda q: ((q, q, q, q[0, 0]), {"is_causal": True}),
    "dropout": lambda q: ((q, q, q), {"dropout_p": 1.5}),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_pytorch_refuses_is_refused(name, numbers):
    """In its words, as far as they do not name types of C++."""
    said = []
    for device in ("cpu", "sim:0"):
        args, options = WRONG[name](torch.ones(1, 2, 8, 8, device=device))
        with pytest.raises(RuntimeError) as caught:
            F.scaled_dot_product_attention(*args, **options)
        said.append(str(caught.value).replace("  ", " ")[:40])
    assert said[0] == said[1]


def test_a_mask_of_another_dtype_is_refused_as_on_cuda(machine):
    with machine("a100"):
        qkv = operands("sim:0")
        mask = torch.zeros(64, 64, device="sim:0")
        with pytest.raises(RuntimeError, match="invalid dtype for bias"):
            F.scaled_dot_product_attention(*qkv, mask)


def test_two_calls_drop_other_weights(numbers):
    xs = random_operands(FLOAT)
    torch.manual_seed(0)
    one, two = (attend(xs, "sim:1", dropout_p=0.5)[0] for _ in range(2))
    torch.manual_seed(0)
    again = attend(xs, "sim:1", dropout_p=0.5)[0]
    assert torch.equal(one, again)
    assert not torch.equal(one, two)


@pytest.mark.parametrize("dropout_p", [0.0, 0.5])
def test_in_inference_mode(dropout_p, numbers):
    xs = [x.to("sim:1") for x in random_operands(FLOAT)[:3]]
    torch.manual_seed(0)
    expected = F.scaled_dot_product_attention(*xs, dropout_p=dropout_p)
    torch.manual_seed(0)
    with torch.inference_mode():
        found = F.scaled_dot_product_attention(*xs, dropout_p=dropout_p)
    assert torch.equal(found.cpu(), expected.cpu())


def test_no_example(numbers):
    xs = [x[:0] for x in random_operands(FLOAT)]
    for dropout_p in (0.0, 0.5):
        for x in attend(xs, "sim:1", dropout_p=dropout_p):
            assert x.shape == (0, 4, 33, 16)
