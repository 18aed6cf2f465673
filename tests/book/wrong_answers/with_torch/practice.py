# refused: 2 shards, inf on device 0
def all_finite(shards):
    return [shard.isfinite().all() for shard in shards]


# refused: bytes, where
import torch


def all_finite(shards):
    found = [torch.cat([s.to(d.device) for s in shards]) for d in shards]
    return [x.isfinite().all() for x in found]


# refused: step 0 has the rate
from torch.optim.lr_scheduler import LinearLR


def warm_scheduler(optimizer, k, num_steps):
    return LinearLR(optimizer, total_iters=num_steps)


# refused: step 1 has the rate
from torch.optim.lr_scheduler import ConstantLR


def warm_scheduler(optimizer, k, num_steps):
    return ConstantLR(optimizer, 1 / k, num_steps)


# refused: 257 rows for 2 devices: the weighted mean
import torch


def pad_and_weigh(X, y, k):
    missing = -len(X) % k
    padded = [
        torch.cat([t, t.new_zeros(missing, *t.shape[1:])]) for t in (X, y)
    ]
    return *padded, torch.ones(len(X) + missing)


# refused: expected 258 of each
import torch


def pad_and_weigh(X, y, k):
    rows = len(X) // k * k
    return X[:rows], y[:rows], torch.ones(rows)
