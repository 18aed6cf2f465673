"""One run of training, seen from one of its ranks.

The examples of a step and of a rank follow from the settings and the number
of the step alone. So ranks exchange no indices, and a run that was killed
resumes from its step::

    epoch 1, shuffled    7 2 9 4 | 0 5 8 1 | 3 6
    step                 0       | 1       | 2
    rank 0 of 3          7 2       0 5       3
    rank 1 of 3          9         8         6
    rank 2 of 3          4         1         (none: it still takes part)
"""

import copy
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F

from dpbook.common.datasets import Labelled
from dpbook.common.models import LeNet
from dpbook.job.ranks import Ranks
from dpbook.job.state_forms import check_fit, forms, not_finite
from dpkit import DistributedDataParallel
from dpkit.units import check_count

TEST_ROWS = 1000  # how many images are scored at a time


def linear(seed: int) -> nn.Module:
    """Return one linear layer from pixels to classes, the quickest model."""
    layer = nn.Linear(28 * 28, 10)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return nn.Sequential(nn.Flatten(), layer)


MODELS: dict[str, Callable[[int], nn.Module]] = {
    "lenet": LeNet,
    "linear": linear,
}


@dataclass(frozen=True)
class Settings:
    """What decides the parameters after a number of steps."""

    model: str = "lenet"  # a name in MODELS
    data: str = "sample"  # or "full", of Fashion-MNIST
    batch_size: int = 256  # examples in a step, of all ranks together
    lr: float = 0.05
    momentum: float = 0.9
    seed: int = 0  # of the parameters and of shuffling


class Run:
    """Parameters and momenta at some step; the data lie on the CPU."""

    def __init__(
        self, settings: Settings, train_set: Labelled, ranks: Ranks
    ) -> None:
        self.settings = settings
        self.images, self.labels = train_set
        self.ranks = ranks
        self.module = MODELS[settings.model](settings.seed).to(ranks.device)
        self.net = DistributedDataParallel(self.module)
        self.optimizer = torch.optim.SGD(
            self.module.parameters(), settings.lr, settings.momentum
        )
        self.step = 0
        self._rehearse()

    @property
    def steps_per_epoch(self) -> int:
        """The number of batches; the last one may be smaller."""
        return -(-len(self.labels) // self.settings.batch_size)

    def rows(self, step: int) -> Tensor:
        """Return the examples of a step, those of all ranks in order."""
        # 10 examples in batches of 4 are 3 steps: step 5 is batch 2 of epoch 1
        epoch, batch = divmod(step, self.steps_per_epoch)
        generator = torch.Generator()
        generator.manual_seed(_seed("epoch", self.settings.seed, epoch))
        order = torch.randperm(len(self.labels), generator=generator)
        rows: Tensor = order.split(self.settings.batch_size)[batch]
        return rows

    def take_step(self) -> None:
        """Take one step of SGD on the mean loss over the whole batch."""
        self._backward()
        self.optimizer.step()
        self.step += 1

    def _backward(self) -> None:
        """Leave the gradients of the mean loss over the whole batch."""
        ranks = self.ranks
        seed = self.settings.seed
        rows = self.rows(self.step)
        mine = ranks.share(rows)
        # Dropout draws other numbers each step, the same after a resume.
        torch.manual_seed(_seed("step", seed, self.step, ranks.rank))
        scores = self.net(self.images[mine].to(ranks.device))
        y = self.labels[mine].to(ranks.device)
        loss = F.cross_entropy(scores, y, reduction="sum")
        self.optimizer.zero_grad()
        # The wrapper divides the sum over ranks by their number, but the mean
        # over the batch needs the number of its examples.
        (loss * ranks.world_size / len(rows)).backward()

    def _rehearse(self) -> None:
        """Take a step and take it back, so that all later steps are alike."""
        before = copy.deepcopy(self.state())
        # The wrapper orders its buckets after the first backward: terms are
        # then added in another order, which changes the last bits.
        self._backward()
        self.optimizer.step()  # it makes its state
        self._forms = forms(self.state())
        self.optimizer.zero_grad()
        self.load(before)

    def state(self) -> dict[str, Any]:
        """Return what the next step depends on, and the world size."""
        return {
            "step": self.step,
            "world_size": self.ranks.world_size,
            "model": self.module.state_dict(),
            # Its options follow from the settings.
            "optimizer": {"state": self.optimizer.state_dict()["state"]},
        }

    def check(self, state: dict[str, Any]) -> None:
        """Raise a ValueError for a state that does not fit, or cannot be."""
        check_fit(state, self._forms)
        if state["step"] < 0:
            raise ValueError(f"the step is negative (step: {state['step']})")
        check_count("world_size", state["world_size"])
        if found := not_finite(state):
            raise ValueError(f"the run had diverged ({found})")

    def load(self, state: dict[str, Any]) -> None:
        """Go on from a state."""
        self.module.load_state_dict(state["model"])
        saved = state["optimizer"]
        mine = self.optimizer.state_dict()
        self.optimizer.load_state_dict(mine | {"state": saved["state"]})
        self.step = state["step"]

    def digest(self) -> str:
        """Return the SHA-256 of the parameters and buffers, to the bit."""
        total = hashlib.sha256()
        for name, value in self.module.state_dict().items():
            total.update(name.encode())
            total.update(value.cpu().contiguous().numpy().tobytes())
        return total.hexdigest()

    def check_alike(self) -> None:
        """Raise a RuntimeError on rank 0, if a rank has other parameters."""
        store = self.ranks.store
        digest = self.digest()
        store.set(f"digest/{self.ranks.rank}", digest)
        others = range(self.ranks.world_size) if self.ranks.rank == 0 else ()
        for rank in others:
            other = store.get(f"digest/{rank}").decode()
            if other != digest:
                raise RuntimeError(
                    "a rank ends with other parameters than rank 0 (rank: "
                    f"{rank}, sha256: {other[:8]}…, rank 0: {digest[:8]}…)"
                )

    @torch.no_grad()
    def count_correct(self, test_set: Labelled) -> int:
        """Return how many images are put into their class."""
        ranks = self.ranks
        count = torch.zeros((), dtype=torch.int64, device=ranks.device)
        mine = ranks.share(torch.arange(len(test_set.labels)))
        self.module.eval()
        for rows in mine.split(TEST_ROWS):
            scores = self.module(test_set.images[rows].to(ranks.device))
            y = test_set.labels[rows].to(ranks.device)
            count += (scores.argmax(dim=1) == y).sum()
        self.module.train()
        dist.all_reduce(count)
        return int(count)


def _seed(*parts: object) -> int:
    """Return a seed of 63 bits that depends on all words."""
    digest = hashlib.sha256(repr(parts).encode()).digest()
    return int.from_bytes(digest[:8]) >> 1
