"""Training steps of a language model, sharded by PyTorch's ``fully_shard``.

The tensors have shapes but no values (``backing="meta"``), so a laptop runs
steps that need 8 GPUs, or 1,024 where one rank stands for all. Each rank
executes what it would execute on these: PyTorch's engine decides when
parameters are gathered and freed.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from dpkit import sim
from dpkit.runs import launch

SIZES = {"width": 4096, "num_blocks": 32, "vocabulary": 32_000}  # of 6.7 B
HEAD = 128  # features of a head of attention


class Block(nn.Module):
    """A block of a transformer: attention, then two dense layers.

    It takes (batch, length, width) and returns the same shape. A
    ``checkpointed`` one keeps its input alone for backward, and computes the
    rest again.
    """

    def __init__(self, width: int, checkpointed: bool = False) -> None:
        super().__init__()
        self.head = min(HEAD, width)
        self.checkpointed = checkpointed
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.qkv = nn.ModuleList(
            nn.Linear(width, width, bias=False) for _ in range(3)
        )
        self.out = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        if self.checkpointed:
            found: Tensor = checkpoint(self._run, x, use_reentrant=False)
            return found
        return self._run(x)

    def _run(self, x: Tensor) -> Tensor:
        x = x + self._attend(self.norms[0](x))
        y: Tensor = self.down(F.gelu(self.up(self.norms[1](x))))
        return x + y

    def _attend(self, x: Tensor) -> Tensor:
        q, k, v = (
            part(x).unflatten(-1, (-1, self.head)).transpose(1, 2)
            for part in self.qkv
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        found: Tensor = self.out(y.transpose(1, 2).flatten(2))
        return found


class LanguageModel(nn.Module):
    """Blocks between an embedding and a head; it returns the mean loss.

    It takes words, shape (batch, length), and the words that follow.

    Args:
        width: The values of a word, inside.
        num_blocks: How many blocks there are.
        vocabulary: How many words there are.
        checkpointed: Whether a block keeps its input alone for backward, and
            runs again there.
    """

    def __init__(
        self,
        width: int,
        num_blocks: int,
        vocabulary: int,
        checkpointed: bool = False,
    ) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(
            Block(width, checkpointed) for _ in range(num_blocks)
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: Tensor, following: Tensor) -> Tensor:  # noqa: D102
        x = self.words(tokens)
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1), following.flatten())


def shard(model: LanguageModel, kind: str, bf16: bool, **how: Any) -> None:
    """Shard each block, then the rest, over all ranks; each rank calls it.

    Args:
        model: It is sharded in place.
        kind: That of the devices: "sim", "cuda" or "cpu".
        bf16: Whether it computes in 16 bits, and keeps and reduces 32.
        **how: What ``fully_shard`` takes besides, by name.
    """
    # Here, not above: it takes a second.
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    how["mesh"] = init_device_mesh(kind, (dist.get_world_size(),))
    if bf16:
        policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
        how["mp_policy"] = policy
    for part in (*model.blocks, model):
        fully_shard(part, **how)


def sharded_steps(
    sizes: dict[str, int],
    world_size: int = 8,
    rows: int = 1,
    length: int = 2048,
    checkpointed: bool = False,
    bf16: bool = True,
    alike: bool = False,
    **how: Any,
) -> dict[str, Any]:
    """Take two steps of Adam; return what the second took on rank 0.

    The devices are H100s, eight in a node. They are joined by NVLink, and
    nodes by InfiniBand; collectives are those of a library. In the first step
    Adam has no averages yet.

    Args:
        sizes: The arguments of :class:`LanguageModel`.
        world_size: The number of ranks, one device for each.
        rows: The texts of a batch, on each device.
        length: The words of a text.
        checkpointed: Whether backward computes activations again.
        bf16: Whether it computes in 16 bits, and keeps and reduces 32.
        alike: Whether rank 0 alone runs, and stands for all. The ranks then
            have to divide the vocabulary and the width.
        **how: What ``fully_shard`` takes besides, by name.

    Returns:
        The number of ``"parameters"``, ``"seconds"`` of the step, simulated,
        and bytes on the device: ``"start"``, before the first step; ``"kept"``
        between steps; ``"backward"``, the most in forward and backward; and
        ``"update"``, the most while Adam updates.

    Raises:
        RuntimeError: a device had too little memory.

    Example:
        >>> from dpbook.sharding.seven_billion import sharded_steps
        >>> sizes = {"width": 128, "num_blocks": 2, "vocabulary": 100}
        >>> found = sharded_steps(sizes, world_size=2, length=16)
        >>> found["parameters"], found["start"]  # 4 bytes each, on 2 devices
        (420096, 840192)
        >>> one = sharded_steps(sizes, world_size=2, length=16, alike=True)
        >>> one == found
        True
    """
    machine = sim.machine(
        num_devices=world_size,
        hosts="per_device",
        accelerator="h100",
        link="nvlink4",
        ranks_per_node=8,
        network="infiniband400",
        backing="meta",
    )

    def train() -> dict[str, Any]:
        with torch.device("meta"):
            model = LanguageModel(**sizes, checkpointed=checkpointed)
        shard(model, "sim", bf16, **how)
        return _two_steps(model.to_empty(device="sim"), (rows, length))

    with machine:
        first, *_ = launch(train, world_size, algorithm="library", alike=alike)
    return dict(first)


def _two_steps(model: nn.Module, shape: tuple[int, int]) -> dict[str, Any]:
    memory = torch.get_device_module("sim")
    device = torch.device("sim", memory.current_device())
    optimizer = torch.optim.Adam(model.parameters(), 1e-4)
    tokens = torch.zeros(shape, dtype=torch.long, device=device)
    found: dict[str, Any] = {
        "parameters": sum(p.numel() for p in model.parameters()),
        "start": memory.memory_allocated(device) - 8 * tokens.numel(),
    }
    for _ in range(2):
        start = _begin(device)
        model(tokens, tokens).backward()
        found["backward"] = memory.max_memory_allocated(device)
        _begin(device)
        optimizer.step()
        found["update"] = memory.max_memory_allocated(device)
        optimizer.zero_grad()
        memory.synchronize(device)
        found["seconds"] = sim.now(device) - start
        found["kept"] = memory.memory_allocated(device)
    return found


def _begin(device: torch.device) -> float:
    """Wait for the device; forget its peak; return the simulated time."""
    memory = torch.get_device_module("sim")
    memory.synchronize(device)
    memory.reset_peak_memory_stats(device)
    return sim.now(device)
