"""Train the Transformer of Lightning's demos with Fabric, by a strategy.

Each rank accumulates two micro-batches. The parameters are to be those of a
loop in one process. Started by torchrun.
"""

import os
import sys
from copy import deepcopy
from pathlib import Path

import torch
from lightning.fabric import Fabric, seed_everything
from lightning.fabric.strategies import DDPStrategy, FSDPStrategy
from lightning.pytorch.demos.transformer import Transformer

STEPS, MICRO = 2, 2
ranks = int(os.environ["WORLD_SIZE"])
folder = Path(sys.argv[2])
strategies = {
    "ddp": DDPStrategy(),
    "fsdp": FSDPStrategy(state_dict_type="full"),
}
fabric = Fabric(
    accelerator="cuda", devices=ranks, strategy=strategies[sys.argv[1]]
)
fabric.launch()
seed_everything(1)
net = Transformer(vocab_size=20, ninp=16, nhead=2, nhid=16, nlayers=1)
net.eval()  # no dropout
expected = deepcopy(net)
tokens = torch.randint(20, (STEPS, MICRO, ranks, 3, 9))


def loss_of(module, batch):
    """Return the loss of the next token."""
    found = module(batch[:, :-1], batch[:, 1:])
    return torch.nn.functional.nll_loss(
        found.reshape(-1, 20), batch[:, 1:].reshape(-1)
    )


module = fabric.setup_module(net)
optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
optimizer = fabric.setup_optimizers(optimizer)
for step in tokens:
    optimizer.zero_grad()
    for number, micro in enumerate(step):
        batch = fabric.to_device(micro[fabric.global_rank])
        with fabric.no_backward_sync(module, enabled=number < MICRO - 1):
            fabric.backward(loss_of(module, batch) / MICRO)
    optimizer.step()

alone = torch.optim.SGD(expected.parameters(), lr=0.1)
for step in tokens:
    alone.zero_grad()
    sum(loss_of(expected, x) for x in step.flatten(0, 1)).div(
        MICRO * ranks
    ).backward()
    alone.step()
fabric.save(folder / "checkpoint", {"model": module})
if fabric.global_rank == 0:
    found = torch.load(folder / "checkpoint", map_location="cpu")["model"]
    for name, value in expected.state_dict().items():
        torch.testing.assert_close(found[name], value)
print("backend", torch.distributed.get_backend(), flush=True)
print(f"rank {fabric.global_rank}: as in one process")
