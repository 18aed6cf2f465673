"""What a Llama of plain modules moves and keeps under PyTorch's engines.

The planner takes the kernels between products as fused. In an eager program
each line of a module is a kernel, which reads and writes memory. A layer of
``dpbook.mesh.model``, its weights in 16 bits, moves and keeps for a token::

    h  values of a token          g  values of all its keys
    f  values inside the MLP      V  words

    values moved, 2 bytes each        forward         backward
      two norms, in float32           40h             108h
      two residuals                   6h              6h
      gradients of inputs, added      –               9h
      rotary positions                9h + 9g         10h + 10g
      keys and values repeated        4h              2h + 2g
      turned into rows of a product   2h              2h + 4g
      SwiGLU                          5f              9f
      pieces of a group, joined or cut  8h            8h

    bytes kept                        in the program  where it is fused
      two norms, in float32           16h             4h
      inputs of products              4h              in the norms
      attention                       10h             4h + 4g
      SwiGLU                          8f              6f
      residuals                       –               4h
      scores of words                 6V, or 16V      4V
                                      on a group

With the sizes of Llama 2 7B with grouped queries, h = 4096, g = 1024 and
f = 11,008, a layer moves 990,720 values of a token, 2.0 MB, and keeps 211 kB.
As one fused kernel each, they are 0.4 MB and 119 kB.

A tensor group divides all of this except three things: gradients of inputs are
added before they are divided, pieces are joined and cut whole, and DTensor
keeps the whole inputs of products, 4h, from forward to backward
(``Layout.gathered``).

``fully_shard`` copies, for each parameter: what was gathered from one flat
tensor (4 bytes), gradients to float32 (6), and these into one flat tensor (8).
Adam, in lists of tensors and not in one kernel, moves 84 bytes.

Source:
    The counts are those of a step on simulated devices, by kernels
    (tests/book/test_plain.py).
"""

from typing import NamedTuple

from dpbook.formulas.transformer import Transformer
from dpbook.planner.layouts import Layout

VALUE = 2  # the bytes of a value
# Bytes for a parameter that a device has before ``fully_shard`` divides it:
COPY_GATHERED = 4  # from the flat tensor, read and written
CAST_PARAMETER = 6  # to 16 bits, during the arithmetic but in a group of one
CAST_GRADIENT = 6  # to float32
ADD_GRADIENT = 12  # to that of the micro-batches before
COPY_GRADIENT = 8  # into the flat tensor
# Bytes for a parameter that it updates, in eight passes over lists of tensors.
UPDATE_BYTES = 84
# Kernels of a layer forward, and backward, without products and attention.
KERNELS = 37, 63
# Passes over the scores of the words: on a group they are in float32.
SCORES_MOVED = {"alone": 20, "on a group": 64}
SCORES_KEPT = {"alone": 6, "on a group": 16}


class Passes(NamedTuple):
    """Values that a layer moves for a token, forward and backward."""

    forward: float
    backward: float

    def values(self, recompute: str) -> float:
        """Return all of them, if forward runs once more: all and a forward."""
        return (2 if recompute == "full" else 1) * self.forward + self.backward


def is_counted(network: object, layout: Layout) -> bool:
    """Return whether the plain kernels of a network are counted here."""
    if not isinstance(network, Transformer) or network.experts:
        return False
    is_llama = network.gated and network.fused and not network.dropout
    return is_llama and layout.recompute != "selective"


def check_plain(model: Transformer, layout: Layout) -> None:
    """Refuse a model, or a layout, whose kernels are not counted here."""
    if not model.gated or model.dropout or not model.fused:
        raise ValueError(
            "plain modules are counted for a Llama: gated, no dropout, "
            f"attention in one kernel (gated: {model.gated}, "
            f"dropout: {model.dropout}, fused: {model.fused})"
        )
    if layout.recompute == "selective":
        raise ValueError(
            "plain modules are counted where backward computes nothing or "
            f"whole blocks again (recompute: {layout.recompute})"
        )


def layer_bytes(model: Transformer, layout: Layout) -> float:
    """Return the bytes that all other kernels of a layer move for a token."""
    check_plain(model, layout)
    t = layout.tensor
    h, g, f = model.hidden, model.keys, model.inner
    rows = t if layout.sequence_parallel else 1
    # Rows of the table in the docstring: norms and residuals; positions,
    # repeats, turned and SwiGLU; gradients of inputs; pieces.
    between = Passes((40 + 6) * h, (108 + 6) * h)
    inside = Passes(
        (9 + 4 + 2) * h + 9 * g + 5 * f,
        (10 + 2 + 2) * h + (10 + 2 + 4) * g + 9 * f,
    )
    again = layout.recompute
    moved = between.values(again) / rows + inside.values(again) / t + 9 * h
    if t > 1:
        moved += Passes(8 * h, 8 * h).values(again)
    return VALUE * moved


def kept_bytes(model: Transformer, layout: Layout) -> float:
    """Return the bytes of a layer that a device keeps for a token."""
    check_plain(model, layout)
    t = layout.tensor
    h, f = model.hidden, model.inner
    rows = t if layout.sequence_parallel else 1
    if layout.recompute == "full":
        return 2 * h / rows
    inputs = 4 * h / (1 if layout.gathered == "kept" else t)
    return 16 * h / rows + inputs + (10 * h + 8 * f) / t


def ends_bytes(model: Transformer, layout: Layout) -> float:
    """Return the bytes that the last norm and the scores move for a token."""
    t = layout.tensor
    moved = SCORES_MOVED["on a group" if t > 1 else "alone"]
    norm = VALUE * 74 * model.hidden
    return norm / t + moved * model.vocabulary / t


def ends_kept(model: Transformer, layout: Layout) -> float:
    """Return the bytes that they keep for a token."""
    t = layout.tensor
    kept = SCORES_KEPT["on a group" if t > 1 else "alone"]
    return (8 / t + 2) * model.hidden + kept * model.vocabulary / t


def parameter_bytes(layout: Layout) -> float:
    """Return the bytes that backward moves for each parameter."""
    several = layout.pipeline > 1  # micro-batches
    return CAST_GRADIENT + (ADD_GRADIENT if several else 0)


def copied_bytes(layout: Layout) -> float:
    """Return the bytes that ``fully_shard`` copies for each parameter.

    It gathers twice, for forward and for backward. Stages of a pipeline keep
    what they have gathered, and do so once. Without a pipeline a step is taken
    as one micro-batch. DDP is charged the same, in place of its casts and its
    copies to buckets, which are not counted apart.
    """
    gathers = 2 if layout.pipeline == 1 else 1
    cast = CAST_PARAMETER if layout.num_copies == 1 else 0
    return gathers * (COPY_GATHERED + cast) + COPY_GRADIENT
