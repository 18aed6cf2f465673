"""PyTorch's engines, applied to the model by the dimensions of a mesh.

The order matters. Tensor parallelism first cuts the matrices; ``fully_shard``
then cuts each piece. No matrix is ever whole: the model has shapes alone until
all is cut.
"""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    set_model_state_dict,
)
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from dpbook.mesh.layouts import Layout, place_in
from dpbook.mesh.model import Block, Llama, Rotary, Sizes
from dpkit.processes import rank_device
from dpkit.sequence import use_cpu_kernel_in_ring

# Nothing here changes the scores in place, of which FSDP2 warns.
warnings.filterwarnings("ignore", "FSDP2-wrapped module .* returned a view")
POSITIONS = 1  # the dimension of positions in (b, s, width)


def build(
    sizes: Sizes,
    layout: Layout,
    mesh: DeviceMesh,
    dtype: torch.dtype,
    whole: Mapping[str, Tensor] | None = None,
) -> Llama:
    """Return this rank's part of the model, cut by all of a layout but DDP.

    Args:
        sizes: Those of the whole model.
        layout: How it is cut.
        mesh: That of the layout.
        dtype: Of the parameters.
        whole: The values of all parameters, by name. None: there are none yet.
    """
    with torch.device("meta"):
        stage = layout.stage(place_in(mesh, "pp"), sizes.blocks)
        model = Llama(sizes, stage).to(dtype)
    for block in blocks_of(model):
        block.recompute = layout.recompute
    if layout.tp > 1:
        cut_layers(model, mesh["tp"])
    if layout.ddp == 1:
        shard(model, layout, mesh)
    model.to_empty(device=rank_device())
    model.rotary.reset_parameters()
    if whole is not None:
        options = StateDictOptions(full_state_dict=True, strict=False)
        set_model_state_dict(model, dict(whole), options=options)
    return model


def blocks_of(model: Llama) -> Iterator[Block]:
    """Yield the blocks of a model."""
    for block in model.blocks.values():
        assert isinstance(block, Block)
        yield block


def cut_layers(model: Llama, mesh: DeviceMesh) -> None:
    """Cut each layer over the ranks of a tensor group.

    Between the matrices each rank has some positions of all numbers; inside,
    all positions of some heads, or of some inner numbers::

        norm          (b, s/t, width)
        ── allgather ──▶
        q, k, v       (b, s, width/t)     matrices cut by columns
        o             (b, s, width)       cut by rows: a part of a sum
        ── reduce-scatter ──▶
        norm          (b, s/t, width)
    """
    parts = Shard(POSITIONS)
    ends: dict[str, ParallelStyle] = {}
    if model.embedding is not None:
        ends["embedding"] = RowwiseParallel(
            input_layouts=Replicate(), output_layouts=parts
        )
    if model.head is not None:
        ends["norm"] = SequenceParallel()
        ends["head"] = ColwiseParallel(
            input_layouts=parts, output_layouts=Shard(-1)
        )
    parallelize_module(model, mesh, ends)
    for block in blocks_of(model):
        parallelize_module(block, mesh, plan_of_block())


def plan_of_block() -> dict[str, ParallelStyle]:
    """Return how each module of a block is cut over a tensor group."""
    parts = Shard(POSITIONS)
    gather = PrepareModuleInput(
        input_layouts=(parts,), desired_input_layouts=(Replicate(),)
    )
    return {
        "attention_norm": SequenceParallel(),
        "attention": gather,
        "attention.q": ColwiseParallel(),
        "attention.k": ColwiseParallel(),
        "attention.v": ColwiseParallel(),
        "attention.o": RowwiseParallel(output_layouts=parts),
        "mlp_norm": SequenceParallel(),
        "mlp": gather,
        "mlp.gate": ColwiseParallel(),
        "mlp.up": ColwiseParallel(),
        "mlp.down": RowwiseParallel(output_layouts=parts),
    }


def shard(model: Llama, layout: Layout, mesh: DeviceMesh) -> None:
    """Cut parameters, gradients and state over all ranks that see other data.

    The ranks of a ring see other positions, as those of fsdp see other rows.
    So the gradients of both are averaged, and both have a shard.

    With a pipeline, parameters stay whole from forward to backward, or each
    micro-batch would gather them again.
    """
    if layout.cp > 1:
        data = mesh["fsdp", "cp"]._flatten("shards")
    elif layout.replicate > 1:
        data = mesh["replicate", "fsdp"]
    else:
        data = mesh["fsdp"]
    settings: dict[str, Any] = {
        "mesh": data,
        "reshard_after_forward": layout.pp == 1,
    }
    if layout.bfloat16:
        settings["mp_policy"] = MixedPrecisionPolicy(
            param_dtype=torch.bfloat16, reduce_dtype=torch.float32
        )
    for block in blocks_of(model):
        fully_shard(block, **settings)
    fully_shard(model, **settings)


@contextmanager
def cut_sequences(
    rotary: Rotary, mesh: DeviceMesh, tokens: Tensor, targets: Tensor
) -> Iterator[None]:
    """Leave each rank of a ring its part of sequences (b, s), in a block.

    Positions go with their tokens: the angles are cut as they are. In the
    block PyTorch's ring takes the place of attention.
    """
    use_cpu_kernel_in_ring()
    with context_parallel(
        mesh,
        buffers=[tokens, targets, rotary.cos, rotary.sin],
        buffer_seq_dims=[1, 1, 0, 0],
        no_restore_buffers={tokens, targets},
    ):
        yield
