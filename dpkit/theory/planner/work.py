"""What a block of a network does and keeps: counts, and then seconds.

A block is a layer of a transformer, say. A device runs it for one micro-batch,
forward and backward. A transformer's layer counts, for each token::

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
of attention computes the scores once more in backward, which makes 2.5.

Assumed: which kernels are fused, as above, and that backward moves 1.5 times
what forward does. A fused kernel of attention, which leaves out the masked
half of the scores, is assumed to have half the rate of other products.
Nothing stays in a cache. What the host takes is in ``launches``. The published
steps in ``book/_data/plans.json`` test all of this together.

Not all programs fuse them so. Other kernels of a layer of 4,096 tokens, h =
4096, on an H100::

                                      simulated, plain modules      here
    GPT: LayerNorm, GELU, dropout             1.32 ms              1.15 ms
    Llama: norm, rotary positions, SwiGLU     3.33 ms              1.15 ms
"""

from typing import NamedTuple

from dpkit.theory.hardware import Accelerator
from dpkit.theory.hardware.costs import achieved_flops_per_second
from dpkit.theory.planner.launches import (
    NO_LAUNCHES,
    LaunchCounts,
    layer_launches,
)
from dpkit.theory.planner.layouts import Layout
from dpkit.theory.transformer import Transformer

NUM_BYTES = 2  # of a number
# The part of the rate of products that a whole program keeps in a long run, of
# what short measurements of single products gave. It is the residue of such
# runs, and so it says something of runs and not of cards: a short run of a
# compiled program keeps more (``Case.sustained``).
# H100: fitted to one row of book/_data/plans.json, 7B on 8 of them.
# H200: assumed as H100, as no run was compared.
# A100: 0.87 has the least mean factor over the 15 steps of transformers that
# the book had when it was chosen, of two sources
# (recorders.trust.plans.best_sustained). The mean factors of seconds:
#
#     kept                                  0.80   0.87   0.94   1.00
#     ZeRO-3, 7 steps                       1.04   1.08   1.15   1.21
#     Korthikanti and others, 8 steps       1.12   1.06   1.04   1.06
#
# So each source alone wants another number. A V100 keeps all: the one step
# that was compared is within 4 %.
SUSTAINED = {"a100": 0.87, "h100": 0.63, "h200": 0.63}
SUM_BYTES = 8  # read and write a sum of gradients in float32
KERNELS = 8  # of a layer forward beside its products


class Counts(NamedTuple):
    """What a device does for one micro-batch, forward and backward."""

    parameters: float  #: those on the device
    flops: float = 0.0  #: of products
    num_products: int = 0  #: how many they are
    traffic: float = 0.0  #: the bytes that all other kernels move
    num_kernels: int = 0  #: how many they are
    kept: float = 0.0  #: bytes from forward to backward
    #: Bytes besides, while backward computes the block again.
    again: float = 0.0
    summed: float = 0.0  #: the bytes of each allreduce of its tensor group
    num_sums: int = 0  #: how many there are
    border: float = 0.0  #: the bytes that go on to the next device
    #: Flops of the two classes that presets know.
    convolutions: tuple[float, float] = (0.0, 0.0)
    launches: LaunchCounts = NO_LAUNCHES  #: what the host issues


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
    t, again = layout.tensor, layout.recompute
    tokens, h = layout.micro_batch * model.sequence, model.hidden
    full = 1 if again == "full" else 0
    times = 3.5 if model.fused else 4.0 if again == "selective" else 3.0
    products = 2 * tokens * model.layer_parameters / t
    scores = 4 * tokens * model.sequence * h / t
    rows = layout.sequence_parallel
    kept, whole = (
        model.kept_bytes(layout.micro_batch, t, recompute, rows)
        for recompute in (again, "none")
    )
    sums = 4 + 2 * full if t > 1 else 0
    # With sequence parallelism a sum is two collectives.
    collectives = sums * (2 if rows else 1)
    return Counts(
        parameters=model.layer_parameters / t,
        flops=(3 + full) * products + (times + full) * scores,
        num_products=6 * (3 + full),
        traffic=tokens * _traffic(model, layout)
        + SUM_BYTES * model.layer_parameters / t,
        num_kernels=KERNELS * (2 + full),
        kept=kept,
        again=whole - kept if full else 0.0,
        summed=NUM_BYTES * tokens * h if t > 1 else 0.0,
        num_sums=sums,
        border=NUM_BYTES * tokens * h / t,
        launches=layer_launches(model, collectives, twice=again == "full"),
    )


def _traffic(model: Transformer, layout: Layout) -> float:
    """Return the bytes of all other kernels, for a token."""
    t, again = layout.tensor, layout.recompute
    between = NUM_BYTES * (2 * 2 + 2 * 3.5) * model.hidden
    between /= t if layout.sequence_parallel else 1
    inside = NUM_BYTES * (3 if model.gated else 2) * model.inner / t
    softmax = NUM_BYTES * 4.5 * model.heads * model.sequence / t
    softmax = 0.0 if model.fused else softmax
    # Forward 1, backward 1.5; softmax again, if that is selective.
    passes = 3.5 if again == "full" else 2.5
    moved = passes * (between + inside + softmax)
    return moved + (softmax if again == "selective" else 0.0)


def ends_counts(model: Transformer, layout: Layout) -> Counts:
    """Return what the device with the scores of the words does for them.

    What the first stage keeps of the embedding is left out. With one stage, a
    device has both ends, which share their weights if they are tied.

    Source:
        Korthikanti et al., 2022, for what is kept.
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


class BlockWork(NamedTuple):
    """The same as seconds; and what is counted in other ways beside it."""

    products: float
    kernels: float
    counts: Counts

    @property
    def seconds(self) -> float:
        """Without messages."""
        return self.products + self.kernels


def work(
    counts: Counts,
    accelerator: Accelerator,
    dtype: str,
    sustained: float = 1.0,
) -> BlockWork:
    """Return the seconds that a device takes for counts.

    Products keep the ``sustained`` part of their rate. Convolutions keep all:
    the factors were fitted to transformers.

    The preset's ``half_flops`` is the work of 4 µs at the peak of float32. In
    a faster dtype half of the rate takes as many microseconds and more work::

        H100, bfloat16     n = 1024   2048   4096   8192
        measured, µs           12.2   25.4    174   1379
        here                    9.2   27.9    178   1379
        with half_flops         4.5   23.2    173   1375

    Source:
        zzc0721/torch-performance-test-data, issue 79, for the measurements.

    Example:
        >>> from dpkit.theory.hardware import ACCELERATORS
        >>> one = Counts(0, flops=2 * 2048**3, num_products=1)
        >>> done = work(one, ACCELERATORS["h100"], "bfloat16")
        >>> f"{1e6 * done.seconds:.1f} µs"
        '27.9 µs'
    """
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
    return BlockWork(products, kernels, counts)
