"""What is timed: products, convolutions, sums, copies, and tiny operations.

As in the forward pass of training, an operand requires a gradient, and results
are new tensors. The clock knows of no caches, so operands come from memory:
calls take turns with parts of a pool that is larger than caches are.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import conv2d

from dpkit.calibration.stopwatch import Probe

Timed = Callable[[], object]


@dataclass(frozen=True)
class Sizes:
    """How large the things are that are timed."""

    rows: Sequence[int]  # of square matrices, for products
    lengths: Sequence[int]  # of float32 vectors, for sums and copies
    images: Sequence[tuple[int, int, int]]  # rows, channels and side
    chains: Sequence[int] = (10, 100)  # operations in a backward pass
    pool: int = 2**25  # how many values the operands are parts of


# The largest vectors have 16 MB on a CPU. For more than 32 MB the C library
# asks the system for new memory each time, which takes far longer.
ON_CPU = Sizes(
    [2**k for k in range(12)],
    [4**k for k in range(12)],
    [(2, 8, 16), (2, 32, 12), (4, 64, 28), (8, 128, 14), (4, 256, 7)],
)
ON_GPU = Sizes(
    [2**k for k in range(3, 13)],
    [4**k for k in range(13)],
    # The first shows what it costs to issue one; see fitted_presets.
    [(1, 8, 8), (64, 64, 56), (128, 128, 28), (256, 256, 14), (512, 512, 7)],
)
MOST_PARTS = 2000
CPU_DTYPES = ("float32", "float64")
GPU_DTYPES = ("float32", "tf32", "float16", "bfloat16", "float64")
CPU_CONVOLUTIONS = ("float32",)
GPU_CONVOLUTIONS = ("float32", "tf32", "float16", "bfloat16")
# Class -> the sides of kernels and the strides that stand for it.
SHAPES = {"fast": [(3, 1)], "other": [(1, 1), (3, 2)]}


def probes(device: torch.device, sizes: Sizes | None = None) -> list[Probe]:
    """Return what is timed on a device.

    Args:
        device: A CPU or GPU.
        sizes: How large the tensors are; by default what suits the device.
    """
    on_cpu = device.type == "cpu"
    sizes = sizes or (ON_CPU if on_cpu else ON_GPU)
    pool, other = (_pool(device, sizes) for _ in range(2))
    found = [
        *_products(device, sizes, CPU_DTYPES if on_cpu else GPU_DTYPES),
        *_convolutions(device, sizes, on_cpu),
        *_elementwise(pool, sizes.lengths),
        *_backward(device, sizes.chains),
        *_to_new_memory(pool, sizes.lengths),
    ]
    if on_cpu:
        found += _copies(
            "copy", source=pool, target=other, lengths=sizes.lengths
        )
        return [*found, _view(device)]
    memory = pool.cpu()
    found += _copies(
        "copy to device", source=memory, target=pool, lengths=sizes.lengths
    )
    found += _copies(
        "copy from device", source=pool, target=memory, lengths=sizes.lengths
    )
    pinned = memory.pin_memory()
    found += _copies("copy", source=pool, target=pinned, lengths=sizes.lengths)
    found += _copies("copy", source=pinned, target=pool, lengths=sizes.lengths)
    if (peer := peer_of(device)) is not None:
        found += _copies(
            "peer copy",
            source=pool,
            target=pool.to(peer),
            lengths=sizes.lengths,
        )
    waiting = [_waited_for(probe, device) for probe in found]
    return [*waiting, _view(device), *_issue(device)]


def peer_of(device: torch.device) -> torch.device | None:
    """Return another device of this kind, if there is one."""
    if device.type == "cpu":
        return None
    count = torch.get_device_module(device).device_count()
    other = 0 if device.index else 1
    return torch.device(device.type, other) if count > 1 else None


def _pool(
    device: torch.device, sizes: Sizes, dtype: str = "float32"
) -> Tensor:
    """Return random values, enough for two operands; float32 for "tf32"."""
    images = [(b * c * n * n, (3 * c) ** 2) for b, c, n in sizes.images]
    products = [n * n for n in sizes.rows]
    largest = max(*sizes.lengths, *products, *map(max, images))
    count = max(sizes.pool, 2 * largest)
    form = getattr(torch, "float32" if dtype == "tf32" else dtype)
    return torch.rand(count, dtype=form, device=device)


def _parts(pool: Tensor, *shape: int) -> list[Tensor]:
    """Return parts of a pool that do not overlap."""
    length = math.prod(shape)
    count = min(MOST_PARTS, len(pool) // length)
    return list(pool[: count * length].view(count, *shape))


def _pairs(pool: Tensor, *shape: int) -> list[tuple[Tensor, Tensor]]:
    """Return pairs of parts; the second requires a gradient."""
    parts = _parts(pool, *shape)
    pairs = zip(parts[::2], parts[1::2])
    return [(a, b.detach().requires_grad_()) for a, b in pairs]


def _products(
    device: torch.device, sizes: Sizes, dtypes: Sequence[str]
) -> Iterator[Probe]:
    """Products of square matrices; size: additions and multiplications."""
    for dtype in dtypes:
        pool = _pool(device, sizes, dtype)
        for n in sizes.rows:
            pairs = _pairs(pool, n, n)
            calls: list[Timed] = [partial(torch.matmul, *p) for p in pairs]
            if dtype == "tf32":
                calls = [_rounded(call) for call in calls]
            yield Probe(f"product {dtype}", 2 * n**3, calls)


def _convolutions(
    device: torch.device, sizes: Sizes, on_cpu: bool
) -> Iterator[Probe]:
    """Convolutions, forward and backward; size: operations of all three."""
    for dtype in CPU_CONVOLUTIONS if on_cpu else GPU_CONVOLUTIONS:
        pool = _pool(device, sizes, dtype)
        for rows, channels, side in sizes.images:
            images = _parts(pool, rows, channels, side, side)
            for kind, shapes in SHAPES.items():
                for width, stride in shapes:
                    w = pool[: (channels * width) ** 2]
                    w = w.view(channels, channels, width, width)
                    call = partial(_convolve, w, stride, dtype == "tf32")
                    out = rows * channels * ((side - 1) // stride + 1) ** 2
                    yield Probe(
                        f"{kind} convolution {dtype}",
                        3 * 2 * out * channels * width**2,
                        [partial(call, x) for x in images],
                    )


def _convolve(w: Tensor, stride: int, rounded: bool, x: Tensor) -> None:
    """Convolve images, and find both gradients."""
    x, w = (t.detach().requires_grad_() for t in (x, w))
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=rounded):
        y = conv2d(x, w, stride=stride, padding=w.shape[-1] // 2)
        torch.autograd.grad(y, (x, w), y.detach())


def _rounded(call: Timed) -> Timed:
    """Allow rounding of float32 to TF32 in a call."""

    def rounded() -> None:
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high")
        call()
        torch.set_float32_matmul_precision(before)

    return rounded


def _elementwise(pool: Tensor, lengths: Sequence[int]) -> Iterator[Probe]:
    """Sums of two vectors, and copies of one; size: bytes, both ways."""
    for n in lengths:
        pairs = _pairs(pool, n)
        sums = [partial(torch.add, *pair) for pair in pairs]
        yield Probe("elementwise", 12 * n, sums)
        yield Probe("elementwise", 8 * n, [w.clone for _, w in pairs])


def _backward(device: torch.device, chains: Sequence[int]) -> Iterator[Probe]:
    """Backward passes through tiny products; size: how many."""
    leaf = torch.ones(1, device=device, requires_grad=True)
    factor = torch.ones(1, device=device)
    for length in chains:
        y = leaf
        for _ in range(length):
            y = y * factor
        call = partial(torch.autograd.grad, y, leaf, factor, retain_graph=True)
        yield Probe("backward", length, [call])


def _view(device: torch.device) -> Probe:
    """Another shape of the same tensor, which no device works for."""
    leaf = torch.ones(1, device=device, requires_grad=True)
    return Probe("view", 1, [partial(leaf.view, 1, 1)])


def _copies(
    kind: str, *, source: Tensor, target: Tensor, lengths: Sequence[int]
) -> Iterator[Probe]:
    """Copies from one pool to another; size: bytes, one way."""
    for n in lengths:
        pairs = zip(_parts(source, n), _parts(target, n))
        calls = [partial(y.copy_, x, non_blocking=True) for x, y in pairs]
        yield Probe(kind, 4 * n, calls)


def _to_new_memory(pool: Tensor, lengths: Sequence[int]) -> Iterator[Probe]:
    """Copies to new memory of the host, which is not pinned."""
    for n in lengths:
        calls = [partial(x.to, "cpu", copy=True) for x in _parts(pool, n)]
        yield Probe("copy to new memory", 4 * n, calls)


def _waited_for(probe: Probe, device: torch.device) -> Probe:
    """End each call of a probe when the device is done with it."""
    wait = partial(torch.get_device_module(device).synchronize, device)

    def waited(call: Timed) -> None:
        call()
        wait()

    calls = [partial(waited, call) for call in probe.calls]
    return replace(probe, calls=calls)


def _issue(device: torch.device) -> Iterator[Probe]:
    """On a GPU: to issue an operation, and to wait for nothing."""
    wait = partial(torch.get_device_module(device).synchronize, device)
    x = torch.ones(1, device=device)
    w = x.clone().requires_grad_()
    yield Probe("launch", 1, [partial(torch.add, x, w)], synchronize=wait)
    yield Probe("wait", 1, [wait])
