"""What a block of a network does and keeps: counts, and then seconds.

A block is a layer of a transformer, say. A device runs it for one micro-batch,
forward and backward. A transformer's layer counts, for each token::

                         forward            backward   computed again
    products: flops      2 · parameters     twice      full: all forward
    scores: flops        4sh                twice      selective, full: all
    – if fused           4sh · computed     2.5        full: all forward
    other kernels, bytes
      two norms          2 (read, write) · 2 values of h
      two residuals      (3 read and write, a mask of half a value) · h, twice
      GELU, or gate      2 or 3 values of f
      softmax, dropout   4.5 values for each of as scores; not if fused

Selective recomputation runs softmax and dropout again where attention is in
parts, and where it is fused all other kernels but neither products nor
attention. Full recomputation runs everything again.

A value has 2 bytes. Backward moves three values where forward moves two, and
reads and writes 4 bytes of a sum of gradients for each weight. A fused kernel
of attention computes the scores once more in backward, which makes 2.5. It
leaves masked scores out by blocks, so a little more than half are computed
(``sim.hardware.causal_attention``). Its rate is that of the kernel which
the card takes, or of the one that a run is said to have taken.

What a layer of experts adds is in ``experts``.

Assumed: which kernels are fused, as above, and that backward moves 1.5 times
what forward does. Nothing stays in a cache. What the host takes is in
``launches``. The published steps in ``book/_data/plans.json`` test all of this
together.

Not all programs fuse them so; ``plain`` counts one that does not, and
``Case.takes_plain`` says which layouts are planned so. Other
kernels of a layer of 4,096 tokens, h = 4096, on an H100::

                                      simulated, plain modules      here
    GPT: LayerNorm, GELU, dropout             1.32 ms              1.15 ms
    Llama: norm, rotary positions, SwiGLU     3.33 ms              1.15 ms
"""

from functools import cache
from typing import NamedTuple

from dpbook.formulas.transformer import Transformer
from dpbook.planner import experts, plain
from dpbook.planner.launches import (
    NO_LAUNCHES,
    LaunchCounts,
    layer_launches,
)
from dpbook.planner.layouts import Layout
from dpkit.sim.hardware import (
    Accelerator,
    achieved_flops_per_second,
    attention_kernel,
    block_side,
    num_scores,
)

NUM_BYTES = 2  # of a value
# The part of the rate of products that a whole program keeps in a long run, of
# what short measurements of single products gave. It is the residue of such
# runs, and so it says something of runs and not of cards: a short run of a
# compiled program keeps more (``Case.sustained``).
# H100: fitted to one row of book/_data/plans.json, 7B on 8 of them.
# H200, B200: assumed as H100, as no run was compared.
# A100: 0.87 has the least mean factor over the 15 steps of transformers that
# the book had when it was chosen, of two sources
# (recorders.trust.plans.best_sustained). The mean factors of seconds:
#
#     kept                                  0.79   0.87   0.94   1.00
#     ZeRO-3, 7 steps                       1.05   1.10   1.17   1.24
#     Korthikanti and others, 8 steps       1.13   1.06   1.04   1.06
#
# So each source alone wants another number. A V100 is taken to keep
# all: no step of a transformer on it was compared.
SUSTAINED = {"a100": 0.87, "h100": 0.65, "h200": 0.65, "b200": 0.65}
SUM_BYTES = 8  # read and write a sum of gradients in float32
KERNELS = 8  # of a layer forward, without its products


class Attention(NamedTuple):
    """Fused causal attention; its flops are those without the mask."""

    forward: float = 0.0  #: flops, computed again included
    backward: float = 0.0
    calls: int = 0  #: how many are forward; one is backward
    length: int = 1  #: of a sequence
    head_size: int = 1


class Counts(NamedTuple):
    """What a device does for one micro-batch, forward and backward."""

    parameters: float  #: those on the device
    expert_parameters: float = 0.0  #: of these, those of experts
    flops: float = 0.0  #: of products; those of fused attention are apart
    num_products: int = 0  #: how many they are
    memory_traffic: float = 0.0  #: the bytes that all other kernels move
    num_kernels: int = 0  #: how many they are
    kept: float = 0.0  #: bytes from forward to backward
    #: Bytes besides, while backward computes the block again.
    again: float = 0.0
    summed: float = 0.0  #: the bytes of each allreduce of its tensor group
    num_sums: int = 0  #: how many there are
    border: float = 0.0  #: the bytes that go on to the next device
    #: Flops of each product during which the tensor group gathers again, in
    #: backward, what it had summed: one for each such message.
    hiding_flops: tuple[float, ...] = ()
    #: The bytes of the keys and values of whole sequences, which those that
    #: share a sequence gather.
    keys_and_values: float = 0.0
    num_gathers: int = 0  #: how often; what they gave is scattered once
    #: The bytes of the rows that a device sends to experts, once.
    sent_rows: float = 0.0
    #: Flops of the two classes that presets know.
    convolutions: tuple[float, float] = (0.0, 0.0)
    launches: LaunchCounts = NO_LAUNCHES  #: what the host issues
    attention: Attention = Attention()


def layer_counts(model: Transformer, layout: Layout) -> Counts:
    """Return what a device does for a layer of a transformer.

    Example:
        The flops of the paper, 72bsh²(1 + s/6h), over the devices:

        >>> gpt = Transformer(layers=48, hidden=6144, heads=64,
        ...                   vocabulary=51_200, sequence=2048,
        ...                   fused=False)
        >>> found = layer_counts(gpt, Layout(1, 8, micro_batch=4)).flops
        >>> expected = 72 * 4 * 2048 * 6144**2 * (1 + 2048 / (6 * 6144)) / 8
        >>> round(found / expected, 9)
        1.0
    """
    experts.check_counted(model, layout)
    t = layout.tensor
    c = layout.context
    tokens = layout.micro_batch * model.sequence / c
    h = model.hidden
    full = 1 if layout.recompute == "full" else 0
    # Whether all kernels but products and attention run once more.
    twice = 1 if _is_run_again(model, layout) else 0
    products, attention = _products(model, layout, tokens)
    kept, besides = _kept(model, layout)
    # Attention and the MLP each have one in forward and one in backward.
    parts = 1 if model.experts else 2
    sums = parts * (2 + twice) if t > 1 else 0
    hiding = _hiding_products(model, layout, tokens)
    gathers = _gathers_of_sequences(layout, twice=twice == 1)
    of_experts = experts.own_parameters(model, layout)
    own = model.non_expert_parameters / t + of_experts
    num_products = (4 if model.fused else 6) + (1 if model.experts else 0)
    counts = Counts(
        parameters=own,
        expert_parameters=of_experts,
        flops=products,
        num_products=num_products * (3 + full),
        memory_traffic=tokens * _memory_traffic(model, layout)
        + SUM_BYTES * own,
        num_kernels=KERNELS * (2 + twice),
        kept=kept,
        again=besides,
        summed=NUM_BYTES * tokens * h if t > 1 else 0.0,
        num_sums=sums,
        border=NUM_BYTES * tokens * h / t,
        hiding_flops=hiding,
        keys_and_values=NUM_BYTES * tokens * c * 2 * model.keys / t,
        num_gathers=gathers,
        sent_rows=experts.row_bytes(model, layout, tokens),
        launches=layer_launches(
            model,
            _num_collectives(
                model,
                layout,
                sums=sums,
                input_gathers=len(hiding),
                gathers=gathers,
            ),
            twice=twice == 1,
            with_products=full == 1,
        ),
        attention=attention,
    )
    return _of_modules(counts, model, layout) if model.plain else counts


def _num_collectives(
    model: Transformer,
    layout: Layout,
    *,
    sums: int,
    input_gathers: int,
    gathers: int,
) -> int:
    """Return how many collectives the host issues for a layer.

    Args:
        model: The network.
        layout: How the step is cut.
        sums: Those of the tensor group.
        input_gathers: Gathers of inputs during products.
        gathers: Those of keys and values.
    """
    # With sequence parallelism a sum is two collectives.
    count = sums * (2 if layout.sequence_parallel else 1) + input_gathers
    if layout.context > 1:
        # What keys and values are gathered for, their gradients are scattered
        # for.
        count += gathers + 1
    return count + experts.num_messages(model, layout)


def _products(
    model: Transformer, layout: Layout, tokens: float
) -> tuple[float, Attention]:
    """Return the flops of a layer's products, and fused attention apart."""
    t = layout.tensor
    full = 1 if layout.recompute == "full" else 0
    flops = (3 + full) * 2 * tokens * model.used_parameters / t
    scores = 4 * tokens * model.sequence * model.hidden / t
    if not model.fused:
        times = 3 if layout.recompute == "none" else 4
        return flops + times * scores, Attention()
    calls = 1 + full
    return flops, Attention(
        forward=calls * scores,
        backward=2.5 * scores,
        calls=calls,
        length=model.sequence,
        head_size=model.hidden // model.heads,
    )


def _kept(model: Transformer, layout: Layout) -> tuple[float, float]:
    """Return the bytes that a layer keeps, and those besides in backward.

    The latter are there while the layer is computed again.
    """
    tokens = layout.micro_batch * model.sequence / layout.context
    gathered = tokens * experts.gathered_bytes(model, layout)
    kept, whole = (
        model.kept_bytes(
            layout.micro_batch,
            tensor=layout.tensor,
            recompute=recompute,
            sequence_parallel=layout.sequence_parallel,
            context=layout.context,
            gathered=layout.gathered,
        )
        + (gathered if recompute == "none" else 0.0)
        for recompute in (layout.recompute, "none")
    )
    again = _is_run_again(model, layout)
    return kept, max(0.0, whole - kept) if again else 0.0


def _of_modules(counts: Counts, model: Transformer, layout: Layout) -> Counts:
    """Return the counts of a layer whose kernels are not fused."""
    tokens = layout.micro_batch * model.sequence / layout.context
    own = model.layer_parameters / layout.tensor
    kept = tokens * plain.kept_bytes(model, layout)
    whole = tokens * plain.kept_bytes(model, layout._replace(recompute="none"))
    forward, backward = plain.KERNELS
    full = layout.recompute == "full"
    return counts._replace(
        memory_traffic=tokens * plain.layer_bytes(model, layout)
        + own * plain.parameter_bytes(layout),
        num_kernels=(2 if full else 1) * forward + backward,
        kept=kept,
        again=whole - kept if full else 0.0,
    )


def _hiding_products(
    model: Transformer, layout: Layout, tokens: float
) -> tuple[float, ...]:
    """Return the flops of the products that hide a message in backward.

    With sequence parallelism a device has kept a t-th of the inputs of two
    products: that of queries, keys and values, and the first of the MLP, which
    with experts gets its rows otherwise. It
    gathers them for the gradients of their weights. Meanwhile it computes the
    gradients of these inputs, which need the weights alone.

    Source:
        NVIDIA/Megatron-LM, megatron/core/tensor_parallel/layers.py,
        ``LinearWithGradAccumulationAndAsyncCommunication.backward``.
    """
    t = layout.tensor
    if t == 1 or not layout.sequence_parallel or layout.gathered == "kept":
        return ()
    h = model.hidden
    columns = [h + 2 * model.keys]
    if not model.experts:
        columns.append((2 if model.gated else 1) * model.inner)
    return tuple(2 * tokens * h * column / t for column in columns)


def _gathers_of_sequences(layout: Layout, twice: bool) -> int:
    """Return how often those that share a sequence gather keys and values.

    Args:
        layout: How the step is cut.
        twice: Whether kernels other than products run once more in backward.
    """
    if layout.context == 1:
        return 0
    if twice and layout.recompute == "selective":
        return 2  # they are not among what is kept
    once_more = layout.gathered == "again"
    return 1 + (layout.recompute == "full") + once_more


def _memory_traffic(model: Transformer, layout: Layout) -> float:
    """Return the bytes of all other kernels, for a token."""
    t = layout.tensor
    again = layout.recompute
    between = NUM_BYTES * (2 * 2 + 2 * 3.5) * model.hidden
    between /= t if layout.sequence_parallel else 1
    inner = (model.choices or 1) * model.inner
    inside = NUM_BYTES * (3 if model.gated else 2) * inner / t
    inside += experts.moved_bytes(model, layout)
    softmax = NUM_BYTES * 4.5 * model.heads * model.sequence / t
    softmax = 0.0 if model.fused else softmax
    # Forward 1, backward 1.5; softmax again, if that is selective.
    passes = 3.5 if _is_run_again(model, layout) else 2.5
    moved = passes * (between + inside + softmax)
    return moved + (softmax if again == "selective" else 0.0)


def _is_run_again(model: Transformer, layout: Layout) -> bool:
    """Return whether backward runs kernels that are no products again."""
    again = layout.recompute
    return again == "full" or (again == "selective" and model.fused)


def ends_counts(model: Transformer, layout: Layout) -> Counts:
    """Return what a device does for the words: their scores, the embedding.

    What the first stage keeps of the embedding is left out. With one stage, a
    device has both ends, which share their weights if they are tied.

    Source:
        Korthikanti et al., 2022, for what is kept.
    """
    t = layout.tensor
    tokens = layout.micro_batch * model.sequence / layout.context
    alone = layout.pipeline == 1
    both = 2 if alone and not model.tied else 1
    h = model.hidden
    vocabulary = model.vocabulary
    counts = Counts(
        parameters=both * model.word_parameters / t,
        flops=6 * tokens * model.word_parameters / t,
        num_products=3,
        kept=4 * tokens * (h + vocabulary) / t if alone else 0.0,
    )
    if not model.plain:
        return counts
    return counts._replace(
        memory_traffic=tokens * plain.ends_bytes(model, layout),
        kept=tokens * plain.ends_kept(model, layout) if alone else 0.0,
    )


class BlockWork(NamedTuple):
    """The seconds of a device for some counts, and the counts."""

    products: float
    kernels: float
    counts: Counts

    @property
    def seconds(self) -> float:
        """The seconds of products and of all other kernels; no messages."""
        return self.products + self.kernels


def work(
    counts: Counts,
    accelerator: Accelerator,
    dtype: str,
    *,
    sustained: float = 1.0,
    kernel: str = "",
) -> BlockWork:
    """Return the seconds that a device takes for counts.

    Convolutions keep all of their rate: the sustained parts were fitted to
    transformers.

    The preset's ``half_flops`` is the work of 4 µs at the peak of float32. In
    a faster dtype half of the rate takes as many microseconds and more work::

        H100, bfloat16     n = 1024   2048   4096   8192
        measured, µs           12.2   25.4    174   1379
        here                    9.2   27.9    178   1379
        with half_flops         4.5   23.2    173   1375

    Args:
        counts: What it computes and moves.
        accelerator: The device.
        dtype: That of products, such as "bfloat16".
        sustained: The part of their rate that products and attention keep.
        kernel: That of fused attention. "": the one that the card takes.

    Source:
        zzc0721/torch-performance-test-data, issue 79, for the measurements.

    Example:
        >>> from dpkit.sim.hardware import ACCELERATORS
        >>> one = Counts(0, flops=2 * 2048**3, num_products=1)
        >>> done = work(one, ACCELERATORS["h100"], "bfloat16")
        >>> f"{1e6 * done.seconds:.1f} µs"
        '27.9 µs'
    """
    products = product_seconds(
        counts.flops,
        count=counts.num_products,
        accelerator=accelerator,
        dtype=dtype,
        sustained=sustained,
    )
    for flops, kind in zip(counts.convolutions, ("fast", "other")):
        if flops:
            products += flops / achieved_flops_per_second(
                accelerator, dtype, kind
            )
    if counts.attention.calls:
        products += _attention_seconds(
            counts.attention,
            accelerator,
            dtype=dtype,
            sustained=sustained,
            kernel=kernel,
        )
    rate = accelerator.bytes_per_second * accelerator.achieved_bytes
    each = accelerator.kernel_seconds + accelerator.half_bytes / rate
    kernels = counts.memory_traffic / rate + counts.num_kernels * each
    return BlockWork(products, kernels, counts)


def product_seconds(
    flops: float,
    *,
    count: int,
    accelerator: Accelerator,
    dtype: str,
    sustained: float,
) -> float:
    """Return the seconds of some products of matrices.

    Args:
        flops: Those of all of them together.
        count: How many they are.
        accelerator: The device.
        dtype: The name of the type that it computes in.
        sustained: The part of the rate of products that is kept.
    """
    rate = sustained * achieved_flops_per_second(accelerator, dtype)
    half = _half_flops(accelerator, dtype)
    return flops / rate + count * (accelerator.kernel_seconds + half / rate)


def _half_flops(accelerator: Accelerator, dtype: str) -> float:
    """Return the arithmetic of a product that reaches half of the rate."""
    peaks = accelerator.flops_per_second
    return accelerator.half_flops * peaks[dtype] / peaks["float32"]


@cache
def _share_of_scores(length: int, side: int) -> float:
    """Return which part of all scores of a sequence a kernel computes."""
    return num_scores(length, length, side=side) / length**2


def _attention_seconds(
    attention: Attention,
    accelerator: Accelerator,
    dtype: str,
    sustained: float,
    kernel: str,
) -> float:
    """Return the seconds of fused attention, forward and backward.

    In float8 only products of matrices are: attention has 16 bits there.

    Args:
        attention: Its sizes, its arithmetic, and how often forward runs.
        accelerator: The device.
        dtype: The name of the type that it computes in.
        sustained: The part of the rate of attention that is kept.
        kernel: The kernel, such as "flash"; "": the one that the device takes.
    """
    dtype = "bfloat16" if dtype == "float8" else dtype
    kernel = kernel or attention_kernel(accelerator, dtype)
    half = _half_flops(accelerator, dtype)
    s = attention.length
    size = attention.head_size
    total = 0.0
    for flops, calls, backward in (
        (attention.forward, attention.calls, False),
        (attention.backward, 1, True),
    ):
        side = block_side(kernel, backward, size)
        computed = flops * _share_of_scores(s, side)
        kind = f"{kernel} backward" if backward else kernel
        rate = sustained * achieved_flops_per_second(accelerator, dtype, kind)
        each = accelerator.kernel_seconds + half / rate
        total += computed / rate + calls * each
    return total
