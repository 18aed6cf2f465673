"""What a block of a network does and keeps: counts, and then seconds.

A block is a layer of a transformer, say. A device runs it for one micro-batch,
forward and backward. Of a transformer's layer it counts, for each token::

                         forward            backward   computed again
    products: flops      2 · parameters     twice      selective: scores
    scores: flops        4sh                2 or 2.5   full: all forward
    other kernels, bytes
      two norms          2 (read, write) · 2 numbers of h
      two residuals      (3 read and write, a mask of half a number) · h, twice
      GELU, or gate      2 or 3 numbers of f
      softmax, dropout   4.5 numbers for each of as scores; not if fused

A number has 2 bytes. Backward moves three numbers where forward moves two, and
reads and writes 4 bytes of a sum of gradients for each weight. A fused kernel
of attention leaves out the half of the scores that is masked, at about half
the rate of other products, so that it takes as long as all of them would.

Assumed: the host launches early enough, nothing stays in a cache.

Source:
    NVIDIA/Megatron-LM, megatron/model (178beeb), for which kernels are fused;
    T. Dao, FlashAttention-2, 2023, arXiv:2307.08691, for five products of
    scores in backward and for its rate, 225 of 312 TFLOP/s on an A100 and 335
    of 989 on an H100.
"""

from typing import ClassVar, NamedTuple, Protocol

from dpkit.theory.hardware import Accelerator
from dpkit.theory.hardware.costs import achieved_flops_per_second
from dpkit.theory.planner.layouts import Layout
from dpkit.theory.transformer import Transformer

NUM_BYTES = 2  # of a number
# The part of the rate of products that a run keeps which lasts for hours, of
# what short measurements gave. Fitted to one row of book/_data/plans.json, 7B
# on 8 H100s; H200 assumed as H100. An A100 and a V100 keep all: no fit was
# needed to be within a fifth.
SUSTAINED = {"h100": 0.63, "h200": 0.63}
KERNELS = 8  # of a layer forward beside its products


class Counts(NamedTuple):
    """What a device does for one micro-batch, forward and backward.

    Attributes:
        parameters: Those on the device.
        flops: Of products.
        num_products: How many they are.
        traffic: The bytes that all other kernels move.
        num_kernels: How many they are.
        kept: Bytes from forward to backward.
        again: Bytes besides, while backward computes the block again.
        summed: The bytes of each allreduce of its tensor group.
        num_sums: How many there are.
        border: The bytes that go on to the next device.
        convolutions: Flops of the two classes that presets know.
    """

    parameters: float
    flops: float = 0.0
    num_products: int = 0
    traffic: float = 0.0
    num_kernels: int = 0
    kept: float = 0.0
    again: float = 0.0
    summed: float = 0.0
    num_sums: int = 0
    border: float = 0.0
    convolutions: tuple[float, float] = (0.0, 0.0)


class Network(Protocol):
    """What can be planned: equal blocks, and what is before and behind.

    ``state_bytes`` are those of a parameter for the optimizer, ``recompute``
    the ways that differ; a group has at most ``most_tensor`` devices.
    """

    @property
    def num_blocks(self) -> int: ...

    @property
    def dtype(self) -> str: ...

    @property
    def parameters(self) -> float: ...

    state_bytes: ClassVar[int]
    most_micro_batch: ClassVar[int]

    @property
    def recompute(self) -> tuple[str, ...]: ...

    @property
    def most_tensor(self) -> int: ...

    def flops(self, num_examples: float) -> float: ...

    def block(self, layout: Layout) -> Counts: ...

    def ends(self, layout: Layout) -> Counts: ...


def layer_counts(model: Transformer, layout: Layout) -> Counts:
    """Return what a device does for a layer.

    Example:
        The flops of the paper, 72bsh²(1 + s/6h), over the devices:

        >>> gpt = Transformer(48, 6144, 64, 51_200, 2048, fused=False)
        >>> found = layer_counts(gpt, Layout(1, 8, micro_batch=4)).flops
        >>> expected = 72 * 4 * 2048 * 6144**2 * (1 + 2048 / (6 * 6144)) / 8
        >>> round(found / expected, 9)
        1.0
    """
    t, b, again = layout.tensor, layout.micro_batch, layout.recompute
    tokens, h = b * model.sequence, model.hidden
    rows = t if layout.sequence_parallel else 1
    products = 2 * tokens * model.layer_parameters / t
    scores = 4 * tokens * model.sequence * h / t
    times = 3.5 if model.fused else 4.0 if again == "selective" else 3.0
    full = 1 if again == "full" else 0
    rest, softmax = _traffic(model)
    moved = tokens * (rest[0] / rows + rest[1] / t)
    weighed = tokens * softmax / t
    # Forward 1, backward 1.5; with softmax again, if it is selective.
    passes = 2.5 + full
    traffic = passes * (moved + weighed)
    traffic += weighed if again == "selective" else 0.0
    kept = model.kept_bytes(b, t, again, layout.sequence_parallel)
    whole = model.kept_bytes(b, t, "none", layout.sequence_parallel)
    return Counts(
        parameters=model.layer_parameters / t,
        flops=(3 + full) * products + (times + full) * scores,
        num_products=6 * (3 + full),
        traffic=traffic + 8 * model.layer_parameters / t,
        num_kernels=KERNELS * (2 + full),
        kept=kept,
        again=whole - kept if again == "full" else 0.0,
        summed=NUM_BYTES * tokens * h if t > 1 else 0.0,
        num_sums=4 + 2 * full if t > 1 else 0,
        border=NUM_BYTES * tokens * h / t,
    )


def _traffic(model: Transformer) -> tuple[tuple[float, float], float]:
    """Return bytes of a token forward: between products, inside, softmax."""
    h, f = model.hidden, model.inner
    between = NUM_BYTES * (2 * 2 * h + 2 * 3.5 * h)
    inside = NUM_BYTES * (3 if model.gated else 2) * f
    softmax = NUM_BYTES * 4.5 * model.heads * model.sequence
    return (between, inside), 0.0 if model.fused else softmax


def ends_counts(model: Transformer, layout: Layout) -> Counts:
    """Return what the device with the scores of the words does for them.

    What the first stage keeps of the embedding is left out. With one stage, a
    device has both ends, which share their weights if they are tied.

    Source:
        Korthikanti et al., 2022, equation 5, for what is kept.
    """
    t, tokens = layout.tensor, layout.micro_batch * model.sequence
    alone = layout.pipeline == 1
    both = 2 if alone and not model.tied else 1
    h, words = model.hidden, model.vocabulary
    return Counts(
        parameters=both * model.word_parameters / t,
        flops=6 * tokens * model.word_parameters / t,
        num_products=3,
        kept=4 * tokens * (h + words) / t if alone else 0.0,
    )


class Work(NamedTuple):
    """The same as seconds; and what is counted in other ways beside it."""

    products: float
    kernels: float
    counts: Counts

    @property
    def seconds(self) -> float:
        """Without messages."""
        return self.products + self.kernels


def work(
    counts: Counts, accelerator: Accelerator, dtype: str, lasting: bool = True
) -> Work:
    """Return the seconds of counts on a device, in a run that lasts or not.

    The preset's ``half_flops`` is the work of 4 µs at the peak of float32. In
    a faster dtype half of the rate takes as many microseconds and more work::

        H100, bfloat16     n = 1024   2048   4096   8192
        measured, µs           12.2   25.4    174   1379
        here                    9.1   27.8    178   1379
        with half_flops         4.5   23.2    173   1375

    Source:
        zzc0721/torch-performance-test-data, issue 79, for the measurements.

    Example:
        >>> from dpkit.theory.hardware import ACCELERATORS
        >>> one = Counts(0, flops=2 * 2048**3, num_products=1)
        >>> done = work(one, ACCELERATORS["h100"], "bfloat16", False)
        >>> f"{1e6 * done.seconds:.1f} µs"
        '27.8 µs'
    """
    sustained = SUSTAINED.get(accelerator.name, 1.0) if lasting else 1.0
    rate = sustained * achieved_flops_per_second(accelerator, dtype)
    peaks = accelerator.flops_per_second
    half = accelerator.half_flops * peaks[dtype] / peaks["float32"]
    each = accelerator.kernel_seconds + half / rate
    products = counts.flops / rate + counts.num_products * each
    for flops, kind in zip(counts.convolutions, ("fast", "other")):
        if flops:
            products += flops / achieved_flops_per_second(
                accelerator, dtype, kind
            )
    rate = accelerator.bytes_per_second * accelerator.achieved_bytes
    each = accelerator.kernel_seconds + accelerator.half_bytes / rate
    kernels = counts.traffic / rate + counts.num_kernels * each
    return Work(products, kernels, counts)
