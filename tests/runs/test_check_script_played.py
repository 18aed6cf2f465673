"""``python -m dpkit check``: one rank gets the batches of all."""

import pytest
import torch

from dpkit.runs.check.played import UnlikeBatchesError, put_together
from tests.runs.test_check_script import check

# As in a tutorial: the text has the batch of a rank, and dropout, batch
# normalization, augmentation, and a schedule by the length of the loader.
SCRIPT = """
import os, sys, torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, random_split
from torch.utils.data.distributed import DistributedSampler

(wrong,) = sys.argv[1:]
dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(rank)
torch.manual_seed(rank if wrong == "split" else 0)


class Noisy(Dataset):
    def __len__(self):
        return 200

    def __getitem__(self, i):
        x = torch.randn(20, generator=torch.Generator().manual_seed(i))
        return {"x": x + 0.1 * torch.randn(20), "y": i % 5, "name": str(i)}


data, _ = random_split(Noisy(), [192, 8])
sampler = None if wrong == "sampler" else DistributedSampler(data)
loader = DataLoader(data, batch_size=16, sampler=sampler, drop_last=True)
net = nn.Sequential(
    nn.Linear(20, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.5),
    nn.Linear(32, 5),
)
if wrong == "encoded":
    encoder = nn.Linear(20, 20).cuda().eval()
if wrong == "draws":
    net.insert(0, nn.RReLU())
net = DDP(net.cuda(), device_ids=[rank])
rate = 1e-2 * (world if wrong == "scaled" else 1)
optimizer = torch.optim.AdamW(net.parameters(), lr=rate)
schedule = torch.optim.lr_scheduler.OneCycleLR(
    optimizer, rate, epochs=2, steps_per_epoch=len(loader)
)
if wrong != "sampler":
    torch.manual_seed(rank)
for epoch in range(2):
    if sampler:
        sampler.set_epoch(epoch)
    for batch in loader:
        x, y = batch["x"].cuda(), batch["y"].cuda()
        if wrong == "own":
            x = torch.randn(x.shape).cuda()
        if wrong == "encoded":
            with torch.no_grad():
                x = encoder(x)
            x = x + torch.randn(x.shape).cuda()
        loss = nn.functional.cross_entropy(net(x), y)
        if wrong == "divided":
            loss = loss / world
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
"""

# A gradient that changes much with the last digit of a parameter.
SENSITIVE = """
import os, torch, torch.distributed as dist
from torch import nn

dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(rank)
torch.manual_seed(0)


class Waves(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(8))

    def forward(self, x):
        return torch.sin(1e5 * self.weight * x).mean()


net = nn.parallel.DistributedDataParallel(Waves().cuda())
optimizer = torch.optim.SGD(net.parameters(), 1e-2)
x = torch.rand(64, 8).chunk(world)[rank].cuda()
for step in range(3):
    optimizer.zero_grad()
    net(x).backward()
    optimizer.step()
"""


@pytest.mark.slow
def test_rounding_does_not_grow_from_step_to_step(tmp_path):
    status, text = check(tmp_path, ranks=2, script=SENSITIVE)
    assert status == 0, text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("right", "sentences"),
    [
        (
            "",
            [
                "2 ranks compute the gradients of one, and agree with each "
                "other (parameters: 6, steps: 2)",
                "one rank has had the batches that the ranks' loaders gave",
                "by the statistics of each rank's own examples",
                "a missing sampler or another global batch, does not show",
            ],
        ),
        (
            "own",
            [
                "2 ranks agree with each other (parameters: 6, steps: 2)",
                "they are not compared with one rank: in step 1 one rank has "
                "32 examples, of which",
            ],
        ),
        (
            "encoded",
            [
                "they are not compared with one rank: in step 1 one rank has "
                "32 examples, of which",
                "as by noise that it draws for the model",
            ],
        ),
        (
            "draws",
            ["not compared with one rank: forward draws random numbers"],
        ),
        ("scaled", ["the learning rate is 2 times that of one rank"]),
    ],
)
def test_a_right_script_of_a_fixed_batch_raises_no_alarm(
    tmp_path, right, sentences
):
    status, text = check(tmp_path, right, ranks=2, script=SCRIPT)
    assert status == 0, text
    for sentence in sentences:
        assert sentence in text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wrong", "sentences"),
    [
        ("divided", ["0.5 times as long", "divided by the number of ranks"]),
        (
            "sampler",
            ["found by torchrun: all ranks give the model the same examples"],
        ),
        ("split", ["has other data on some ranks", "without a seed"]),
    ],
)
def test_a_mistake_beside_a_fixed_batch_is_found(tmp_path, wrong, sentences):
    status, text = check(tmp_path, wrong, ranks=2, script=SCRIPT)
    assert status == 1, text
    for sentence in sentences:
        assert sentence in text


def test_batches_are_joined():
    ones, zeros = torch.ones(2, 3), torch.zeros(1, 3)
    assert put_together([ones, zeros]).tolist() == [[1] * 3, [1] * 3, [0] * 3]
    found = put_together(
        [{"x": ones, "names": ["a", "b"]}, {"x": zeros, "names": ["c"]}]
    )
    assert len(found["x"]) == 3
    assert found["names"] == ["a", "b", "c"]
    assert [
        len(part) for part in put_together([[ones, ones], [zeros, ones]])
    ] == [
        3,
        4,
    ]
    assert put_together([7, 7]) == 7


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        ([torch.ones(2, 3), torch.ones(2, 4)], r"\(2, 3\), \(2, 4\)"),
        ([torch.tensor(1), torch.tensor(1)], "not of an example"),
        ([7, 8], "values that differ"),
    ],
)
def test_batches_of_different_forms_are_not(batches, message):
    with pytest.raises(UnlikeBatchesError, match=message):
        put_together(batches)


# Images of different sizes, in lists, as torchvision's models of detection
# take them; the loader's workers take batches ahead.
DETECTION = """
import sys, torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(rank)
torch.manual_seed(0)


class Images(Dataset):
    def __len__(self):
        return 10

    def __getitem__(self, i):
        draws = torch.Generator().manual_seed(i)
        image = torch.randn(2, 8 + i % 4, 9 - i % 3, generator=draws)
        boxes = torch.rand(1 + i % 3, 4, generator=draws)
        return image, {"boxes": boxes, "id": i}


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Conv2d(2, 6, 3)
        self.normalize = nn.BatchNorm1d(6)
        self.box = nn.Linear(6, 4)

    def forward(self, images, targets):
        found = [self.body(x[None]).relu().mean((2, 3)) for x in images]
        boxes = self.box(self.normalize(torch.cat(found)))
        loss = sum((b - t["boxes"]).abs().mean()
            for b, t in zip(boxes, targets))
        return loss / (1 if "sum" in sys.argv else len(images))


data = Images()
loader = DataLoader(
    data, batch_size=2, sampler=DistributedSampler(data), num_workers=1,
    collate_fn=lambda examples: tuple(zip(*examples)),
)
net = DDP(Detector().cuda())
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for images, targets in loader:
    images = [x.cuda() for x in images]
    targets = [{"boxes": t["boxes"].cuda()} for t in targets]
    optimizer.zero_grad()
    net(images, targets).backward()
    optimizer.step()
"""


@pytest.mark.slow
def test_lists_of_images_are_put_together(tmp_path):
    status, text = check(tmp_path, ranks=2, script=DETECTION)
    assert status == 0, text
    assert "2 ranks compute the gradients of one" in text
    assert "by the statistics of each rank's own examples" in text
    status, text = check(tmp_path, "sum", ranks=2, script=DETECTION)
    assert status == 1, text
    assert "0.5 times as long" in text


def test_lists_of_examples_are_told_from_lists_of_fields():
    images = [(torch.ones(3, 4), torch.ones(3, 5)), (torch.ones(3, 6),)]
    found = put_together(images, [2, 1])
    assert [x.shape[1] for x in found] == [4, 5, 6]
    known = [({"boxes": torch.ones(1, 4)},), ({"boxes": torch.ones(2, 4)},)]
    assert len(put_together(known, [1, 1])) == 2
    fields = [[torch.ones(2, 4), torch.ones(2)]] * 2
    assert [len(x) for x in put_together(fields, [2, 2])] == [4, 4]
