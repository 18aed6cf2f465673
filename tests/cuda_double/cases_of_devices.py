"""What programs do with two GPUs: values, memory, refusals."""

import copy
import io
import threading
from typing import Any, ClassVar

import torch
from torch import nn
from torch.nn import functional as F

import dpkit

ZERO, ONE = torch.device("cuda:0"), torch.device("cuda:1")


def network() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Conv2d(4, 4, 3, groups=4),
        nn.Flatten(),
        nn.Linear(256, 5),
    )


def after_training(device: str) -> list[torch.Tensor]:
    """Train for two steps; give the parameters, on the CPU."""
    net = network().to(device)
    optimizer = torch.optim.Adam(net.parameters())
    torch.manual_seed(2)
    X, y = torch.randn(8, 1, 12, 12), torch.randint(5, (8,))
    for _ in range(2):
        optimizer.zero_grad()
        F.cross_entropy(net(X.to(device)), y.to(device)).backward()
        optimizer.step()
    return [p.detach().cpu() for p in net.parameters()]


def case_training_as_on_the_cpu() -> list[bool]:
    expected = after_training("cpu")
    return [
        all(map(torch.equal, expected, after_training(device)))
        for device in ("cuda:0", "cuda:1")
    ]


class WhoIsIt(torch.autograd.Function):
    threads: ClassVar[dict[str, int]] = {}

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        WhoIsIt.threads[str(gradient.device)] = threading.get_native_id()
        return gradient


def case_a_thread_for_each_device() -> list[int]:
    x = torch.ones(2, device=ZERO, requires_grad=True)
    WhoIsIt.apply(WhoIsIt.apply(x).to(ONE)).sum().backward()
    threads = set(WhoIsIt.threads.values())
    return [len(threads), len(threads - {threading.get_native_id()})]


def largest_difference(a: nn.Module, b: nn.Module) -> float:
    pairs = zip(a.parameters(), b.parameters(), strict=True)
    return max(
        float((p.grad.cpu() - q.grad.cpu()).abs().max()) for p, q in pairs
    )


def case_data_parallel() -> list[Any]:
    on_cpu, on_gpus = network().eval(), network().eval().to(ZERO)
    X = torch.randn(7, 1, 12, 12)
    expected = on_cpu(X)
    got = nn.DataParallel(on_gpus, [0, 1])(X.to(ZERO))
    expected.square().sum().backward()
    got.square().sum().backward()
    return [
        str(got.device),
        torch.allclose(expected, got.cpu(), atol=1e-6),
        largest_difference(on_cpu, on_gpus) < 1e-3,
    ]


def recurrent(kind: type[nn.RNNBase]) -> float:
    torch.manual_seed(0)
    on_cpu = kind(3, 4, num_layers=2)
    on_gpu = copy.deepcopy(on_cpu).to(ONE)
    x = torch.randn(5, 2, 3)
    on_cpu(x)[0].square().sum().backward()
    on_gpu(x.to(ONE))[0].square().sum().backward()
    return largest_difference(on_cpu, on_gpu)


def case_lstm() -> bool:
    return recurrent(nn.LSTM) < 1e-6


def case_gru() -> bool:
    return recurrent(nn.GRU) < 1e-6


def case_rms_norm() -> bool:
    torch.manual_seed(0)
    values = torch.randn(5, 3, 4, 2)
    for shape in ((2,), (4, 2), (5, 3, 4, 2)):
        on_cpu = nn.RMSNorm(shape)
        nn.init.normal_(on_cpu.weight)
        on_gpu = copy.deepcopy(on_cpu).to(ONE)
        here, there = (
            values.to(d, copy=True).requires_grad_() for d in ("cpu", ONE)
        )
        on_cpu(here).sin().sum().backward()
        on_gpu(there).sin().sum().backward()
        if largest_difference(on_cpu, on_gpu) > 1e-5:
            return False
        if not torch.allclose(here.grad, there.grad.cpu(), atol=1e-6):
            return False
    return True


def case_attention() -> bool:
    torch.manual_seed(0)
    x = [torch.randn(2, 3, 5, 4) for _ in range(3)]
    may_see = torch.ones(5, 5, dtype=torch.bool).tril()
    for mask in (None, may_see):
        on = [t if t is None else t.to(ONE) for t in (*x, mask)]
        on_gpu = F.scaled_dot_product_attention(*on)
        on_cpu = F.scaled_dot_product_attention(*x, mask)
        if not torch.allclose(on_cpu, on_gpu.cpu(), atol=1e-6):
            return False
    return True


def case_attention_keeps_its_switches() -> list[str]:
    """Simulated devices choose a kernel by them."""
    q = torch.ones(1, 2, 64, 16, device=dpkit.devices(1, "sim")[0])
    with dpkit.sim.trace() as timeline:
        F.scaled_dot_product_attention(q, q, q)
    return [s.name for s in timeline.spans if s.device == "sim:0"]


def case_products_in_16_bits() -> list[bool]:
    torch.manual_seed(0)
    x, y, z = torch.randn(3, 2, 40, 40).double()
    equal = []
    for dtype in (torch.float16, torch.bfloat16):
        a, b, c = (t.to(ZERO, dtype) for t in (x, y, z))
        pairs = (
            (a[0].mm(b[0]), a[0].float().mm(b[0].float())),
            (a.bmm(b), a.float().bmm(b.float())),
            (
                torch.addmm(c[0], a[0], b[0]),
                torch.addmm(*(t[0].float() for t in (c, a, b))),
            ),
            (
                torch.baddbmm(c, a, b),
                torch.baddbmm(*(t.float() for t in (c, a, b))),
            ),
        )
        equal += [torch.equal(found, wide.to(dtype)) for found, wide in pairs]
    return equal


def case_a_deep_copy() -> list[Any]:
    x = torch.ones(2, 3, device=ONE)
    y = copy.deepcopy(x)
    y += 1
    return [str(y.device), x.sum().item(), y.sum().item()]


def case_saved_and_loaded() -> list[str]:
    file = io.BytesIO()
    torch.save(torch.ones(3, device=ONE), file)
    places = [None, "cuda:0", "cpu"]
    found = []
    for place in places:
        file.seek(0)
        x = torch.load(file, map_location=place)
        assert x.sum().item() == 3
        found.append(str(x.device))
    return found


def case_random_numbers() -> list[Any]:
    torch.manual_seed(3)
    state = torch.cuda.get_rng_state(ONE)
    first = torch.rand(4, device=ONE)
    second = torch.rand(4, device=ONE)
    torch.cuda.set_rng_state(state, ONE)
    again = torch.rand(4, device=ONE)
    generator = torch.Generator(ZERO).manual_seed(3)
    named = torch.rand(4, device=ZERO, generator=generator)
    return [
        state.numel(),
        torch.equal(first, again),
        torch.equal(first, second),
        torch.equal(first.cpu(), named.cpu()),
    ]


def case_dropout() -> list[Any]:
    x = torch.ones(10_000, device=ZERO, requires_grad=True)
    y = F.dropout(x, 0.25)
    y.sum().backward()
    kept = int((y != 0).sum())
    return [7_200 < kept < 7_800, torch.allclose(x.grad, y.detach())]


def case_out_of_memory_and_on() -> list[Any]:
    before = torch.cuda.memory_allocated(ONE)
    try:
        torch.empty(16 << 30, dtype=torch.uint8, device=ONE)
    except torch.OutOfMemoryError as error:
        told = str(error)
    half = torch.empty(8 << 30, dtype=torch.uint8, device=ONE)
    held = torch.cuda.memory_allocated(ONE) - before
    del half
    other = torch.empty(9 << 30, dtype=torch.uint8, device=ONE)
    return [told, held, other.numel()]


def case_a_device_that_is_not_there() -> None:
    torch.ones(3, device="cuda:5")


def case_two_devices_mixed() -> None:
    torch.ones(3, device=ZERO) + torch.ones(3, device=ONE)


def case_the_cpu_mixed_in() -> None:
    torch.ones(3, device=ZERO) @ torch.ones(3)


def case_a_number_of_the_cpu_goes() -> float:
    return (torch.ones(3, device=ONE) * torch.tensor(2.0)).sum().item()


def case_indices_of_a_gpu_on_the_cpu() -> None:
    torch.ones(3)[torch.tensor([0], device=ZERO)]


def case_indices_of_the_cpu_go() -> float:
    return torch.arange(3.0, device=ONE)[torch.tensor([2, 1])].sum().item()


def case_an_event_of_another_device() -> None:
    event = torch.cuda.Event()
    event.record(torch.cuda.current_stream(ZERO))
    event.record(torch.cuda.current_stream(ONE))


def case_an_event_waited_for_elsewhere() -> None:
    event = torch.cuda.Event()
    event.record(torch.cuda.current_stream(ZERO))
    torch.cuda.current_stream(ONE).wait_event(event)


def timed(end_on: torch.device, waits: bool) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record(torch.cuda.current_stream(ZERO))
    end.record(torch.cuda.current_stream(end_on))
    if waits:
        begin.synchronize()
        end.synchronize()
    return begin.elapsed_time(end)


def case_time_between_two_devices() -> float:
    return timed(ONE, waits=True)


def case_time_that_nobody_waited_for() -> float:
    return timed(ZERO, waits=False)


def case_time() -> bool:
    return timed(ZERO, waits=True) > 0


def case_numpy_of_a_gpu() -> None:
    torch.ones(3, device=ZERO).numpy()


def case_pinned() -> list[bool]:
    x = torch.ones(4).pin_memory()
    return [x.is_pinned(), x[1:].is_pinned(), torch.ones(4).is_pinned()]


def case_properties() -> list[Any]:
    properties = torch.cuda.get_device_properties(1)
    return [
        torch.cuda.device_count(),
        torch.cuda.get_device_name(1),
        torch.cuda.get_device_capability(1),
        properties.total_memory,
        torch.cuda.is_bf16_supported(),
        str(torch.accelerator.current_accelerator()),
    ]


def case_a_kernel_that_is_not_doubled() -> None:
    torch.cuda._sleep(1)
