"""A step of a language model like Llama 3 8B, on ranks that are alike.

``python -m tests.runs.llama_alike 64`` tells what it takes on 64 simulated
H100s, and what this machine needs to find that out.
"""

import resource
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn import functional as F

import dpkit

HEAD = 128  # features of a head of attention
LLAMA_8B = {
    "width": 4096,
    "hidden": 14336,
    "num_blocks": 32,
    "heads": 32,
    "kv_heads": 8,
    "vocabulary": 128_256,
}


class Block(nn.Module):
    """Attention whose heads share keys and values, then a gated network."""

    def __init__(self, width, hidden, heads, kv_heads):
        super().__init__()
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(2))
        self.q = nn.Linear(width, heads * HEAD, bias=False)
        self.k = nn.Linear(width, kv_heads * HEAD, bias=False)
        self.v = nn.Linear(width, kv_heads * HEAD, bias=False)
        self.o = nn.Linear(heads * HEAD, width, bias=False)
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x):
        h = self.norms[0](x)
        q, k, v = (
            part(h).unflatten(-1, (-1, HEAD)).transpose(1, 2)
            for part in (self.q, self.k, self.v)
        )
        y = F.scaled_dot_product_attention(
            q, k, v, is_causal=True, enable_gqa=True
        )
        x = x + self.o(y.transpose(1, 2).flatten(2))
        h = self.norms[1](x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Llama(nn.Module):
    """Blocks between an embedding and a head; it returns the mean loss."""

    def __init__(self, num_blocks, vocabulary, width, **sizes):
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        blocks = (Block(width, **sizes) for _ in range(num_blocks))
        self.blocks = nn.ModuleList(blocks)
        self.norm = nn.RMSNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, words, following):
        x = self.words(words)
        for block in self.blocks:
            x = block(x)
        scores = self.head(self.norm(x))
        return F.cross_entropy(scores.flatten(0, 1), following.flatten())


def train(sizes, length):
    """Take a step; return its seconds and peak on this rank, simulated."""
    with torch.device("meta"):
        model = Llama(**sizes).bfloat16()
    mesh = init_device_mesh("sim", (dist.get_world_size(),))
    for part in (*model.blocks, model):
        fully_shard(part, mesh=mesh)
    model.to_empty(device="sim")
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    words = torch.zeros(1, length, dtype=torch.long, device="sim")
    torch.sim.synchronize()
    begin = dpkit.sim.now()
    model(words, words).backward()
    optimizer.step()
    torch.sim.synchronize()
    return dpkit.sim.now() - begin, torch.sim.max_memory_allocated()


def run(world_size, sizes, length, alike, algorithm=None):
    """Return what rank 0 has found, and its timeline."""
    machine = dpkit.sim.machine(
        num_devices=world_size,
        accelerator="h100",
        link="nvlink4",
        ranks_per_node=8,
        network="infiniband400",
        hosts="per_device",
        backing="meta",
    )
    with machine, dpkit.sim.trace() as timeline:
        found = dpkit.sim.launch(
            train, world_size, sizes, length, algorithm=algorithm, alike=alike
        )
    return found[0], timeline


def main(world_size, whole=""):
    begin, cpu = time.perf_counter(), time.process_time()
    found, timeline = run(world_size, LLAMA_8B, 4096, not whole, "library")
    seconds, peak = found
    wall, cpu = time.perf_counter() - begin, time.process_time() - cpu
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"{world_size} ranks, {timeline.label}: a step of {seconds:.3f} s, "
        f"{peak / 2**30:.1f} GiB at most\n"
        f"this machine: {wall:.1f} s ({cpu:.1f} of CPU), {memory:.2f} GiB"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
