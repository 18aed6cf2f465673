"""The checks of the exercises on collectives."""

import torch

from dpbook.common.required_messages import require_sent
from dpbook.exercises.verdict import Answer, require
from dpkit import devices
from dpkit.traffic import Traffic


def check_clip_shards(answer: Answer) -> None:
    """The norm of the whole, from the shards, in a few bytes."""
    generator = torch.Generator().manual_seed(0)
    for k, length in ((1, 5), (2, 8), (3, 2), (5, 303)):
        ranks = devices(k, "sim")
        whole = torch.randn(length, generator=generator).double()
        norm = float(whole.norm())
        for max_norm in (0.5 * norm, 2 * norm):
            parts = whole.tensor_split(k)
            shards = [x.to(d, copy=True) for x, d in zip(parts, ranks)]
            given = list(shards)
            with Traffic() as traffic:
                answer(shards, max_norm)
            found = torch.cat([shard.cpu() for shard in given])
            clipped = min(1.0, max_norm / norm) * whole
            case = f"{length} values of norm {norm:.2f} on {k} devices"
            why = f"the shards have norm {float(found.norm()):.2f}"
            right = bool(torch.allclose(found, clipped, rtol=1e-5))
            require(right, f"{case}, at most {max_norm:.2f}: {why}")
            # Little more than a value of 8 bytes to and from each rank.
            most = max(traffic.sent.values(), default=0)
            require_sent(most, 2 * 8 * k, f"a device of {k}")
