"""Train Llama 3 8B with FSDP2: a program that torchrun starts.

Usage: torchrun --nproc-per-node 8 llama_fsdp.py
       python llama_fsdp.py --tracked 64

It prints the peak of memory of a step on rank 0, in bytes: the first step,
then the second, which has an optimizer's state from the start. With
``--tracked`` PyTorch's own FSDPMemTracker counts, on rank 0 of as many ranks:
its tensors are of the CPU and have no values, and its group sends nothing.
"""

import json
import os
import sys
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers import LlamaConfig, LlamaForCausalLM

LENGTH = 8192
STEPS = 2
LLAMA = LlamaConfig(
    vocab_size=128_256,
    hidden_size=4096,
    intermediate_size=14_336,
    num_hidden_layers=32,
    num_attention_heads=32,
    num_key_value_heads=8,
    max_position_embeddings=LENGTH,
    attn_implementation="sdpa",
    use_cache=False,
)


def sharded_model(mesh: DeviceMesh) -> Any:
    """Return the model, of which each rank of a mesh keeps its shards."""
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
    with torch.device("meta"):
        model: Any = LlamaForCausalLM(LLAMA)
    for part in (*model.model.layers, model):
        fully_shard(part, mesh=mesh, mp_policy=policy)
    model.to_empty(device=mesh.device_type)
    model.gradient_checkpointing_enable()
    return model


def take_step(model: nn.Module, optimizer: Any, tokens: Tensor) -> None:
    """Take a step of the optimizer."""
    model(input_ids=tokens, labels=tokens).loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def allocated() -> Iterator[int]:
    """Yield the peak of each step by torch.cuda."""
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    model = sharded_model(init_device_mesh("cuda", (dist.get_world_size(),)))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, foreach=True)
    tokens = torch.zeros(1, LENGTH, dtype=torch.long, device="cuda")
    for _ in range(STEPS):
        torch.cuda.reset_peak_memory_stats()
        take_step(model, optimizer, tokens)
        torch.cuda.synchronize()
        yield torch.cuda.max_memory_allocated()


def tracked(world_size: int) -> Iterator[int]:
    """Yield the peak of each step by PyTorch's tracker."""
    dist.init_process_group(
        "fake", store=FakeStore(), rank=0, world_size=world_size
    )
    mesh = init_device_mesh("cpu", (world_size,))
    with FakeTensorMode():
        model = sharded_model(mesh)
        optimizer = torch.optim.AdamW(model.parameters(), 1e-4, foreach=True)
        tokens = torch.zeros(1, LENGTH, dtype=torch.long)
        for _ in range(STEPS):
            tracker = FSDPMemTracker(model, optimizer)
            tracker.track_inputs((tokens,))
            with tracker:
                take_step(model, optimizer, tokens)
            (found,) = tracker.get_tracker_snapshot("peak").values()
            yield found["Total"]


def main(arguments: list[str]) -> None:
    """Print the peaks."""
    peaks = tracked(int(arguments[1])) if arguments else allocated()
    found = list(peaks)
    if dist.get_rank() == 0:
        print(json.dumps({"peaks": found}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
