"""Train the model of Lightning's demos with its Trainer, by a strategy.

The parameters are to be those of a loop in one process. Started by torchrun.
"""

import os
import sys

import torch
from lightning.pytorch import Trainer, seed_everything
from lightning.pytorch.demos.boring_classes import BoringModel, RandomDataset
from torch.utils.data import DataLoader

STEPS = 4
strategy, folder = sys.argv[1:]
ranks = int(os.environ["WORLD_SIZE"])
rank = int(os.environ["RANK"])
seed_everything(1)
data = RandomDataset(32, STEPS * ranks)
model = BoringModel()
expected = torch.nn.Linear(32, 2)
expected.load_state_dict(model.layer.state_dict())
trainer = Trainer(
    accelerator="gpu",
    devices=ranks,
    strategy=strategy,
    max_epochs=1,
    limit_val_batches=0,
    default_root_dir=folder,
    logger=False,
    enable_progress_bar=False,
    use_distributed_sampler=False,
)
# Each rank has examples of its own.
own = torch.utils.data.Subset(data, range(rank, len(data), ranks))
trainer.fit(model, DataLoader(own))
state = trainer.strategy.lightning_module_state_dict()

optimizer = torch.optim.SGD(expected.parameters(), lr=0.1)
for batch in data.data.split(ranks):
    optimizer.zero_grad()
    (expected(batch) - 1).square().mean().backward()
    optimizer.step()
if rank == 0:
    for name, value in expected.state_dict().items():
        torch.testing.assert_close(state[f"layer.{name}"].cpu(), value)
print("backend", torch.distributed.get_backend(), flush=True)
print(f"rank {rank}: {trainer.global_step} steps, as in one process")
