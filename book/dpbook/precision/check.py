"""The checks of the exercises on results that change with the devices."""

import torch

from dpbook.common.required_messages import require_sent
from dpbook.exercises.verdict import Answer, require
from dpkit import devices
from dpkit.traffic import Traffic


def check_all_finite(answer: Answer) -> None:
    """One answer on every device, from one value of each."""
    inf = float("inf")
    nan = float("nan")
    for k in (1, 2, 3, 5):
        for rank, bad in ((None, 0.0), (0, inf), (k - 1, nan), (k // 2, -inf)):
            shards = [
                torch.ones(100 + r, device=device)
                for r, device in enumerate(devices(k, "sim"))
            ]
            where = "all finite"
            if rank is not None:
                shards[rank][7] = bad
                where = f"{bad} on device {rank}"
            _check_flags(answer, shards, rank is None, f"{k} shards, {where}")


def _check_flags(
    answer: Answer, shards: list[torch.Tensor], finite: bool, case: str
) -> None:
    """Require the right flag on each device, for a few bytes."""
    k = len(shards)
    ranks = [shard.device for shard in shards]
    with Traffic() as traffic:
        found = answer(shards)
    why = f"{case}: it returned {found}, not one tensor for each device"
    require(found is not None and len(found) == k, why)
    places = [flag.device for flag in found]
    require(places == ranks, f"{case}: the answers lie on {places}")
    flags = [bool(flag) for flag in found]
    require(flags == [finite] * k, f"{case}: the devices say {flags}")
    require_sent(max([*traffic.sent.values(), 0]), 16 * k, case)
