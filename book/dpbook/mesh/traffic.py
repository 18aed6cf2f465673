"""The bytes that a layout sends in a step, of all ranks together.

In an allgather of n bytes over k ranks each sends (k - 1)/k · n, and as much
in a reduce-scatter: (k - 1)n all together. With N parameters, T
tokens, h numbers of a token and L blocks, in 16 bits::

    fsdp k       allgather        2(k - 1)N in forward, the same in backward
                 reduce-scatter   4(k - 1)N, gradients in 32 bits
    ddp k        allreduce        2 · 4(k - 1)N, by a ring
    replicate r  allreduce        2 · 4(r - 1)N, of the shards that each has
    tp t         allgather        2(t - 1)Th, 4L + 2 times
                 reduce-scatter   the same
    pp p         message          2 · 2(p - 1)Th, numbers and their gradients

tp gathers what goes into attention and into SwiGLU, and in backward the
gradients of what comes out: 4 times a block. The head gathers in forward, and
the embedding in backward.

With a pipeline, fsdp gathers once: parameters stay whole until backward.
"""

from dpbook.mesh.layouts import Layout
from dpbook.mesh.model import Sizes

HALF, SINGLE = 2, 4  # bytes of a number


def expected_bytes(
    layout: Layout, sizes: Sizes, num_rows: int
) -> dict[tuple[str, str], int]:
    """Return what all ranks send, by dimension of the mesh and kind.

    What a ring sends is left out, and what is small: norms, the losses of
    words in parts, the shapes that stages tell each other.

    Args:
        layout: In bfloat16, without recomputation. Parts are equal.
        sizes: Those of the model.
        num_rows: Sequences in the batch, over all ranks.

    Example:
        >>> from dpbook.mesh.runs import LARGE
        >>> sent = expected_bytes(Layout(fsdp=8), LARGE, 16)
        >>> {kind: f"{n / 1e9:.1f} GB" for (_, kind), n in sent.items()}
        {'allgather': '27.2 GB', 'reduce_scatter': '27.2 GB'}
    """
    shards = layout.fsdp * layout.cp
    number = parameters_of_parts(sizes, layout.tp)
    name = "shards" if layout.cp > 1 else "fsdp"
    gathers = 1 if layout.pp > 1 else 2
    between = HALF * num_rows * sizes.length * sizes.width
    parts = (layout.tp - 1) * (4 * sizes.blocks + 2) * between
    several = layout.replicate * (shards - 1) * number
    sent = {
        (name, "allgather"): gathers * HALF * several,
        (name, "reduce_scatter"): SINGLE * several,
        ("replicate", "allreduce"): 2
        * SINGLE
        * (layout.replicate - 1)
        * number,
        ("ddp", "allreduce"): 2 * SINGLE * (layout.ddp - 1) * number,
        ("tp", "allgather"): parts,
        ("tp", "reduce_scatter"): parts,
        ("pp", "message"): 2 * (layout.pp - 1) * between,
    }
    return {key: n for key, n in sent.items() if n}


def parameters_of_parts(sizes: Sizes, tp: int) -> int:
    """Return the parameters of all parts of layers, those of norms in each.

    Example:
        >>> parameters_of_parts(Sizes(), tp=1)
        156224
        >>> parameters_of_parts(Sizes(), tp=2) - 156224  # 9 norms of 64
        576
    """
    keys = sizes.width * sizes.key_heads // sizes.heads
    attention = 2 * sizes.width * (sizes.width + keys)
    block = attention + 3 * sizes.width * sizes.inner
    embeddings = 2 * sizes.vocabulary * sizes.width
    norms = (2 * sizes.blocks + 1) * sizes.width
    return sizes.blocks * block + embeddings + tp * norms
