"""What operations cost on simulated devices: launches, bytes, waits."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import dpkit
from dpkit.sim.clock.clock import Clock
from dpkit.sim.devices.configuration import simulation
from dpkit.sim.hardware import ACCELERATORS, HOSTS, LINKS
from dpkit.sim.operators.record import operator_of

ZERO, ONE = dpkit.devices(2, "sim")


def spans(run, device="sim:0"):
    with dpkit.sim.trace() as timeline:
        run()
    return [s for s in timeline.spans if s.device == device]


def names(run, device="sim:0"):
    return [s.name for s in spans(run, device)]


def waits(run):
    return any(s.kind == "wait" for s in spans(run, "host"))


@pytest.fixture
def x():
    return torch.arange(1.0, 13.0, device=ZERO).view(3, 4)


def test_a_product_counts_its_arithmetic_and_its_traffic(x):
    (span,) = spans(lambda: x @ torch.empty(4, 5, device=ZERO))
    assert (span.name, span.flops) == ("mm", 2 * 3 * 4 * 5)
    assert span.num_bytes == 4 * (3 * 4 + 4 * 5 + 3 * 5)


@pytest.mark.parametrize(
    ("run", "num_floats"),
    [
        (lambda x: x + x, 3 * 12),
        (lambda x: x.relu(), 2 * 12),
        (lambda x: x.add_(1), 2 * 12),
        (lambda x: x.sum(), 12 + 1),
        (lambda x: x.zero_(), 12),
        (lambda x: torch.zeros(3, 4, device=ZERO), 12),
        (lambda x: torch.cat([x, x]), 24 + 24),
        (lambda x: x[:, :2].contiguous(), 6 + 6),
        (lambda x: torch._foreach_add_([x, x], 1.0), 2 * 24),
        (lambda x: torch._foreach_add([x, x], 1.0), 24 + 24),
        (lambda x: x.index_select(0, torch.tensor([1], device=ZERO)), 8),
    ],
)
def test_traffic_is_what_is_read_and_written(x, run, num_floats):
    span = spans(lambda: run(x))[-1]
    assert span.num_bytes == 4 * num_floats


@pytest.mark.parametrize(
    "run",
    [
        lambda x: x.view(-1),
        lambda x: x.t(),
        lambda x: x[1],
        lambda x: x.detach(),
        lambda x: x.expand(2, 3, 4),
        lambda x: x.t_(),
        lambda x: x.unsqueeze_(0).squeeze_(),
        lambda x: torch.empty(5, device=ZERO),
        lambda x: torch.empty_like(x),
    ],
)
def test_views_and_empty_tensors_launch_nothing(x, run):
    assert names(lambda: run(x)) == []


@pytest.mark.parametrize(
    "run",
    [
        lambda x: x.sum().item(),
        lambda x: bool(x[0, 0] > 0),
        lambda x: x.cpu(),
        lambda x: x.nonzero(),
        lambda x: x[x > 2],
        lambda x: x.masked_select(x > 2),
        lambda x: x.unique(),
        lambda x: torch.equal(x, x),
        lambda x: torch.ones(3).to(ZERO),
        lambda x: x.tolist(),
        lambda x: repr(x),
    ],
)
def test_the_host_waits_where_cuda_s_would(x, run):
    assert waits(lambda: run(x))


@pytest.mark.parametrize(
    "run",
    [
        lambda x: x + 1,
        lambda x: x.to(ONE),
        lambda x: x[torch.zeros(2, dtype=torch.int64, device=ZERO)],
        lambda x: x.masked_fill_(x > 2, 5.0),
        lambda x: x.__setitem__(x > 2, 5.0),
        lambda x: x.to("cpu", non_blocking=True),
        lambda x: x + torch.tensor(2.0),
    ],
)
def test_the_host_goes_on_where_cuda_s_would(x, run):
    assert not waits(lambda: run(x))


def test_copies_name_their_ends(x):
    assert names(lambda: x.to(ONE)) == ["copy to sim:1"]
    assert names(lambda: x.to(ONE), "sim:1") == ["copy from sim:0"]
    assert names(lambda: x.cpu()) == ["copy to host"]
    assert names(lambda: torch.ones(3).to(ZERO)) == ["copy from host"]
    assert names(lambda: x.clone()) == ["clone"]
    y = torch.zeros(3, 4, device=ONE)
    assert names(lambda: y.copy_(x)) == ["copy to sim:1"]
    assert names(lambda: x.copy_(x + 1)) == ["add", "copy_"]


def test_pinned_memory_is_faster(x):
    big = torch.ones(1000, 1000)
    (pageable,) = spans(lambda: big.to(ZERO))
    pinned = big.pin_memory()
    (direct,) = spans(lambda: pinned.to(ZERO))
    (queued,) = spans(lambda: pinned.to(ZERO, non_blocking=True))
    ratio = (pageable.end - pageable.start) / (direct.end - direct.start)
    assert ratio > 2
    assert waits(lambda: pinned.to(ZERO))
    assert not waits(lambda: pinned.to(ZERO, non_blocking=True))
    assert waits(lambda: big.to(ZERO, non_blocking=True))
    assert queued.num_bytes == direct.num_bytes == 4_000_000


def seconds_of(copy):
    """Return how long the one copy takes, less the link's latency."""
    (span,) = spans(copy)
    link = simulation.clock.cluster.host_link
    return span.end - span.start - link.latency_seconds


def test_memory_that_is_not_pinned_has_three_rates(x):
    y = torch.ones(1000, 1000, device=ZERO)
    old = torch.empty(1000, 1000)
    host = replace(HOSTS["eager"], **{
        "to_device_bytes_per_second": 2e9,
        "from_device_bytes_per_second": 3e9,
        "new_memory_bytes_per_second": 5e9,
    })  # fmt: skip
    with dpkit.sim.machine(host=host):
        assert seconds_of(lambda: old.to(ZERO)) == pytest.approx(4e6 / 2e9)
        assert seconds_of(lambda: y.copy_(old)) == pytest.approx(4e6 / 2e9)
        assert seconds_of(lambda: old.copy_(y)) == pytest.approx(4e6 / 3e9)
        assert seconds_of(lambda: y.cpu()) == pytest.approx(4e6 / 5e9)
        assert seconds_of(lambda: y.to("cpu")) == pytest.approx(4e6 / 5e9)


def test_slow_copies_of_several_processes_share_the_bus():
    """At 5.5 GB/s on a bus of 13, two at a time; if pinned, in turn."""
    old = torch.ones(1000, 1000)
    for batch, in_turn in ((old, 2), (old.pin_memory(), 4)):
        with dpkit.sim.machine(hosts="per_device"):
            devices = dpkit.devices(4, "sim")
            with dpkit.sim.trace() as timeline:
                for device in devices:
                    batch.to(device, non_blocking=True)
        copies = [s for s in timeline.spans if s.kind == "copy"]
        one = copies[0].end - copies[0].start
        first = min(s.start for s in copies)
        last = max(s.end for s in copies)
        assert last - first == pytest.approx(in_turn * one, rel=1e-6)


def test_a_backward_convolution_launches_a_kernel_for_each_gradient():
    w = torch.ones(2, 1, 3, 3, device=ZERO, requires_grad=True)
    x = torch.ones(5, 1, 8, 8, device=ZERO)

    def launches(x):
        loss = nn.functional.conv2d(x, w).sum()
        with dpkit.sim.trace() as timeline:
            loss.backward()
        (span,) = [
            s for s in timeline.spans
            if s.name == "convolution_backward" and s.kind == "launch"
        ]  # fmt: skip
        return span.end - span.start

    only_weight, also_input = launches(x), launches(x.requires_grad_())
    assert also_input == pytest.approx(2 * only_weight)


def convolution(width, stride=1, groups=1, **options):
    w = torch.ones(64, 64 // groups, width, width, device=ZERO)
    x = torch.ones(2, 64, 56, 56, device=ZERO)
    with dpkit.sim.machine(accelerator="p100"):
        (span,) = spans(
            lambda: nn.functional.conv2d(
                x, w, stride=stride, groups=groups, **options
            )
        )
    return span.flops / length(span)


def test_the_kernel_and_the_stride_decide_the_class_of_a_convolution():
    """On a P100 fast ones go at 1.37 times the peak, others at 0.54."""
    fast = convolution(3), convolution(5)
    others = (
        convolution(1),
        convolution(7),
        convolution(3, stride=2),
        convolution(3, dilation=2),
        convolution(3, groups=2),
    )
    assert min(fast) > 1.5 * max(others)


def test_a_convolution_backward_has_the_class_of_the_forward():
    def backward(width):
        x = torch.ones(8, 64, 56, 56, device=ZERO, requires_grad=True)
        w = torch.ones(64, 64, width, width, device=ZERO, requires_grad=True)
        with dpkit.sim.machine(accelerator="p100"):
            found = spans(lambda: nn.functional.conv2d(x, w).sum().backward())
        (span,) = (s for s in found if s.name == "convolution_backward")
        return span.flops / length(span)

    peak = ACCELERATORS["p100"].flops_per_second["float32"]
    assert 1.2 * peak < backward(5) < 1.37 * peak
    assert 0.4 * peak < backward(7) < 0.54 * peak


def test_a_transposed_convolution_is_no_fast_one():
    w = torch.ones(64, 64, 3, 3, device=ZERO)
    x = torch.ones(8, 64, 56, 56, device=ZERO)
    with dpkit.sim.machine(accelerator="p100"):
        (span,) = spans(lambda: nn.functional.conv_transpose2d(x, w))
    peak = ACCELERATORS["p100"].flops_per_second["float32"]
    assert span.flops / length(span) < 0.54 * peak


# Operation -> a module, and how many times the bytes of its input move in
# forward and in backward, where the kernels of CUDA read something twice.
NORMS = {
    "native_batch_norm": (lambda: nn.BatchNorm2d(16), 3, 5),
    "native_group_norm": (lambda: nn.GroupNorm(4, 16), 3, 5),
    "native_layer_norm": (lambda: nn.LayerNorm([14, 14]), 2, 5),
    "native_dropout": (lambda: nn.Dropout(), 2.25, 2.25),  # a mask of bytes
    "gelu": (lambda: nn.GELU(), 2, 3),
    "_softmax": (lambda: nn.Softmax(dim=1), 2, 6),  # product first
    "_log_softmax": (lambda: nn.LogSoftmax(dim=1), 2, 3),
}


def passes(module, x):
    """Return how many times the bytes of x each of two operations moves."""
    x = x.detach().requires_grad_()
    y = module(x)
    with dpkit.sim.trace() as forward:
        module(x)
    with dpkit.sim.trace() as backward:
        y.backward(torch.ones_like(y))
    return [
        max(s.num_bytes / x.nbytes for s in t.spans if s.device == "sim:0")
        for t in (forward, backward)
    ]


@pytest.mark.parametrize("name", NORMS)
def test_kernels_that_read_their_input_twice(name):
    make, forward, backward = NORMS[name]
    x = torch.ones(32, 16, 14, 14, device=ZERO)
    found = passes(make().to(ZERO), x)
    assert found == pytest.approx([forward, backward], rel=0.02)


# Module -> how many times the bytes of its input move where rows do not fit
# into shared memory: 12,288 numbers in float32 do not.
LONG_ROWS = {nn.Softmax: (4, 8), nn.LogSoftmax: (4, 5)}


@pytest.mark.parametrize("module", LONG_ROWS)
def test_long_rows_are_read_again(module):
    x = torch.ones(8, 12_288, device=ZERO)
    expected = [*LONG_ROWS[module]]
    assert passes(module(dim=1), x) == pytest.approx(expected, rel=0.02)
    short = passes(module(dim=1), x[:, 1:].contiguous())
    assert short[0] == pytest.approx(2, rel=0.02)


def test_a_masked_fill_fills_a_copy():
    x = torch.ones(64, 1000, device=ZERO)
    mask = torch.ones(1, 1000, device=ZERO, dtype=torch.bool)
    (span,) = spans(lambda: x.masked_fill(mask, 0.0))
    assert span.num_bytes == pytest.approx(4 * x.nbytes, rel=0.02)


def test_a_batch_norm_that_does_not_train_reads_once():
    x = torch.ones(32, 16, 14, 14, device=ZERO)
    found = passes(nn.BatchNorm2d(16).to(ZERO).eval(), x)
    assert found == pytest.approx([2, 3], rel=0.02)


def test_a_loss_reads_one_number_of_each_row():
    x = torch.ones(64, 1000, device=ZERO, requires_grad=True)
    y = torch.zeros(64, dtype=torch.int64, device=ZERO)
    found = {
        s.name: s.num_bytes / x.nbytes
        for s in spans(lambda: nn.functional.nll_loss(x, y).backward())
    }
    assert found["nll_loss_forward"] < 0.01
    assert found["nll_loss_backward"] == 1


def test_a_fused_optimizer_moves_each_tensor_once():
    """Adam reads p, its gradient, m and v, and writes p, m and v."""
    p = torch.ones(500, 20, device=ZERO, requires_grad=True)
    p.grad = torch.ones_like(p)
    adam = torch.optim.Adam([p], fused=True)
    adam.step()
    span = spans(adam.step)[-1]
    assert span.name == "_fused_adam_"
    assert span.num_bytes == pytest.approx(7 * p.nbytes, rel=0.01)


def test_each_gradient_of_a_convolution_reads_what_comes_in():
    w = torch.ones(32, 32, 1, 1, device=ZERO, requires_grad=True)
    x = torch.ones(4, 32, 20, 20, device=ZERO, requires_grad=True)
    y = nn.functional.conv2d(x, w)
    found = spans(lambda: y.backward(torch.ones_like(y)))
    (span,) = (s for s in found if s.name == "convolution_backward")
    # the gradient twice, x and its gradient; the weight and its gradient
    assert span.num_bytes == 4 * x.nbytes + 2 * w.nbytes


OPTIMIZERS = [
    torch.optim.SGD,
    lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True),
    torch.optim.Adam,
    torch.optim.AdamW,
    lambda p: torch.optim.Adam(p, amsgrad=True),
    torch.optim.Adamax,
    torch.optim.Adadelta,
    torch.optim.Adagrad,
    torch.optim.ASGD,
    torch.optim.NAdam,
    torch.optim.RAdam,
    torch.optim.RMSprop,
    torch.optim.Rprop,
]


class Launched(TorchDispatchMode):
    """Note the operations that would launch a kernel."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if operator_of(func).launches:
            self.names.append(func._schema.name.partition("::")[2])
        return func(*args, **(kwargs or {}))


def launched(optimizer, device, foreach):
    """Return what a second step launches for twelve tensors."""
    torch.manual_seed(0)
    params = [torch.randn(5, 3).to(device).requires_grad_() for _ in range(12)]
    chosen = optimizer(params)
    for group in chosen.param_groups:
        group["foreach"] = foreach
    for p in params:
        p.grad = torch.ones_like(p)
    chosen.step()
    with Launched() as mode:
        chosen.step()
    return mode.names


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_optimizers_launch_for_all_tensors_at_once(optimizer):
    """By default, what the CPU does when told to: ``foreach=True``."""
    # On some versions x[mask] = 5 makes a tensor of the 5, but on the CPU.
    by_default, at_once = (
        [name for name in names if name != "scalar_tensor"]
        for names in (
            launched(optimizer, ZERO, foreach=None),
            launched(optimizer, "cpu", foreach=True),
        )
    )
    assert by_default == at_once
    one_by_one = launched(optimizer, "cpu", foreach=False)
    assert len(by_default) < len(one_by_one)


def test_a_view_costs_the_host_and_a_launch_costs_more(x):
    def seconds(run):
        start = dpkit.sim.now()
        run()
        return dpkit.sim.now() - start

    host = HOSTS["eager"]
    assert seconds(lambda: x.t()) == pytest.approx(host.view_seconds)
    assert seconds(lambda: x + 1) == pytest.approx(host.launch_seconds)


def length(span):
    return span.end - span.start


def test_copies_go_at_the_rate_of_their_link():
    big = torch.ones(1000, 1000, device=ZERO)
    (fast,) = spans(lambda: big.to(ONE))
    (to_host,) = spans(lambda: big.to("cpu", non_blocking=True))
    with dpkit.sim.machine(link="pcie3"):
        (slow,) = spans(lambda: big.to(ONE))
    link = LINKS["nvlink2"]
    rate = link.bytes_per_second * link.achieved
    assert length(fast) == pytest.approx(link.latency_seconds + 4e6 / rate)
    assert length(slow) == pytest.approx(length(to_host))
    assert length(slow) > 5 * length(fast)


def test_lists_are_copied_without_waiting_if_asked():
    pinned = [torch.ones(9).pin_memory() for _ in range(2)]
    targets = [torch.ones(9, device=ZERO) for _ in range(2)]
    assert waits(lambda: torch._foreach_copy_(targets, pinned))
    assert not waits(lambda: torch._foreach_copy_(targets, pinned, True))


def test_one_value_behind_a_mask_is_filled_in_without_waiting(x):
    value = torch.tensor(5.0, device=ZERO)
    many = torch.ones(12, device=ZERO)
    mask = x > 0
    assert not waits(lambda: x.index_put_((mask,), value))
    assert waits(lambda: x.index_put_((mask,), many))


@pytest.mark.filterwarnings("ignore:indexing with dtype torch.uint8")
def test_masks_of_bytes_are_masks(x):
    mask = (x > 2).to(torch.uint8)
    assert waits(lambda: x[mask])


@pytest.mark.parametrize("name", ["embedding", "gather", "index", "take"])
def test_a_few_rows_of_a_large_table(name):
    table = torch.ones(1000, 4, device=ZERO)
    rows = torch.tensor([3, 5], device=ZERO)
    run = {
        "embedding": lambda: nn.functional.embedding(rows, table),
        "gather": lambda: table.gather(0, rows.expand(4, 2).t()),
        "index": lambda: table[rows],
        "take": lambda: table.take(rows.repeat(4)),
    }[name]
    (span,) = [s for s in spans(run) if s.name == name]
    assert span.num_bytes == 2 * 4 * 8


def test_reading_a_number_takes_a_copy(x):
    total = x.sum()
    (span,) = spans(lambda: total.item())
    assert span.name == "copy to host"
    assert length(span) > LINKS["pcie3"].latency_seconds


# ------------------------------------------------------ autograd's threads


def test_a_thread_waits_for_what_another_has_to_send():
    """Backward through two devices: the first starts when the second sends."""
    x = torch.ones(5, device=ZERO, requires_grad=True)
    y = x.sin().to(ONE)
    for _ in range(20):
        y = y.sin()
    loss = y.sum()
    with dpkit.sim.trace() as timeline:
        loss.backward()
    threads = {
        d: [s for s in timeline.spans if s.stream == f"backward sim:{d}"]
        for d in (0, 1)
    }
    sent = next(s for s in threads[1] if s.name.startswith("copy"))
    assert sent.start > 20 * HOSTS["eager"].backward_launch_seconds
    uses_it = next(s for s in threads[0] if s.name == "mul")
    assert uses_it.start >= sent.end


def test_an_arrival_counts_on_its_own_clock_alone():
    x = torch.ones(5, device=ZERO, requires_grad=True)
    x.arrival = Clock(simulation.clock.cluster), 10**15
    with dpkit.sim.machine():
        (x * x).sum().backward()
        assert dpkit.sim.now() < 1


def test_a_trace_inside_backward():
    seen = []

    def hook(gradient):
        with dpkit.sim.trace() as timeline:
            gradient * 2
        seen.extend(s.name for s in timeline.spans if s.device == "sim:0")

    x = torch.ones(5, device=ZERO, requires_grad=True)
    y = x * x
    y.register_hook(hook)
    y.sum().backward()
    assert seen[-1] == "mul"


def test_what_is_sent_on_waits_for_its_arrival():
    """A cast before the copy, and a copy of a copy."""
    two = dpkit.devices(3, "sim")[2]
    for paths in ((ZERO, ONE), (ZERO, ONE, two)):
        x = torch.ones(1500, 1500, device=ZERO, requires_grad=True)
        y = x.sin().half()
        for device in paths[1:]:
            y = y.to(device)
        loss = (y.float() @ y.float()).sum()
        dpkit.synchronize([ZERO, ONE, two])
        with dpkit.sim.trace() as timeline:
            loss.backward()
        by_device = {
            str(d): [s for s in timeline.spans if s.device == str(d)]
            for d in paths
        }
        for sender, receiver in zip(paths[:0:-1], paths[-2::-1]):
            sent = [
                s for s in by_device[str(sender)]
                if s.name == f"copy to {receiver}"
            ]  # fmt: skip
            work = [
                s for s in by_device[str(receiver)]
                if s.name in ("_to_copy", "mul", f"copy to {ZERO}")
            ]  # fmt: skip
            assert work
            assert all(s.start >= sent[-1].end for s in work)
