"""The ranks of a job that ``torchrun`` starts, on one host or on many.

A process alone is a job of one rank.
"""

import os
import re
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import (  # type: ignore[attr-defined]
    HashStore,
    PrefixStore,
    Store,
)
from torch.distributed.rendezvous import rendezvous

from dpbook.job.device_assignment import choose_device
from dpbook.job.roll_call import RollCall

# gloo raises a RuntimeError that begins with its place, "[/…/pair.cc:538] ".
OF_OTHERS = re.compile(r"\[/|.*(timed? ?out|connection)", re.I | re.S)


@dataclass(frozen=True)
class Ranks:
    """The ranks of a job, seen from one of them; used in a ``with``."""

    rank: int
    device: torch.device  # where its tensors belong
    hosts: list[str]  # the name of each rank's host
    store: Store  # what all ranks can read and write
    roll: RollCall  # tells which of them are lost
    why_cpu: str = ""  # why the device is no GPU, where GPUs were seen

    def __enter__(self) -> "Ranks":
        return self

    def __exit__(self, *_: object) -> None:
        self.roll.end()
        dist.destroy_process_group()

    def finish(self) -> None:
        """Wait until all ranks are here, and need each other no more."""
        dist.barrier()
        self.roll.end()
        with suppress(RuntimeError):
            dist.barrier()  # rank 0 ends, and the store with it, last

    @property
    def world_size(self) -> int:
        """The number of ranks."""
        return len(self.hosts)

    def share(self, rows: Tensor) -> Tensor:
        """Return this rank's part of rows, (n,)."""
        return rows.tensor_split(self.world_size)[self.rank]

    def lost(self) -> list[int]:
        """Call the roll; return the other ranks that are lost.

        If the store does not answer: those on other hosts, or else rank 0.
        """
        lost = self.roll.lost()
        if lost is not None:
            return sorted(lost)
        # hosts a b b c, rank 2: rank 0 and rank 3 are away
        here = self.hosts[self.rank]
        away = [r for r, host in enumerate(self.hosts) if host != here]
        return away or [0]

    def watch(self, stop: Callable[[list[int]], None]) -> None:
        """Have ``stop`` end this rank soon after the others, if one is lost.

        If all answer the roll call, it goes on: it may have more to save.
        """

        def wait() -> None:
            silent = self.roll.unnoticed()
            if silent:
                stop(sorted(silent))

        threading.Thread(target=wait, daemon=True).start()

    def names(self, ranks: list[int]) -> str:
        """Return "rank 2 on b, rank 3 on b"."""
        return ", ".join(f"rank {r} on {self.hosts[r]}" for r in ranks)


def join_job(timeout_seconds: float) -> Ranks:
    """Join the ranks that ``torchrun`` has started, or be the only one.

    The default process group is NCCL's where every rank has its own GPU and
    ``DPKIT_DEVICES`` does not ask for other devices, else gloo's.

    Args:
        timeout_seconds: How long to wait for other ranks, now and in every
            operation of several ranks.

    Raises:
        ConnectionError: the ranks could not connect.
        ValueError: the environment lacks a variable that torchrun sets.
    """
    timeout = timedelta(seconds=timeout_seconds)
    try:
        store, rank, world_size = _connect(timeout)
        own = PrefixStore("devices", store)
        device, why_cpu = choose_device(rank, world_size=world_size, store=own)
        dist.init_process_group(
            "gloo" if device.type == "cpu" else "nccl",
            store=PrefixStore("group", store),
            rank=rank,
            world_size=world_size,
            timeout=timeout,
            device_id=None if device.type == "cpu" else device,
        )
        # Later, a rank may no longer be there to ask for its name.
        store.set(f"host/{rank}", socket.gethostname())
        hosts = [store.get(f"host/{r}").decode() for r in range(world_size)]
        roll = RollCall(rank, world_size, store)
    except RuntimeError as error:
        raise ConnectionError(
            f"the ranks could not connect ({_place()}, timeout: "
            f"{timeout_seconds:g} s, why: {brief(error)}); where hosts have "
            "more networks than one, GLOO_SOCKET_IFNAME and "
            "NCCL_SOCKET_IFNAME name the one that joins them"
        ) from error
    roll.start()
    return Ranks(
        rank=rank,
        device=device,
        hosts=hosts,
        store=store,
        roll=roll,
        why_cpu=why_cpu,
    )


def is_of_others(error: BaseException) -> bool:
    """Return whether an error comes of other ranks, not of this one."""
    if isinstance(error, RuntimeError) and OF_OTHERS.match(str(error)):
        return True
    return isinstance(error, dist.DistError)


def brief(error: BaseException) -> str:
    """Return the first line of an error of torch, without its place."""
    first = str(error).strip().partition("\n")[0]
    return first[first.find("] ") + 1 :].strip() or type(error).__name__


def _connect(timeout: timedelta) -> tuple[Store, int, int]:
    """Return the common store, this rank and the number of ranks."""
    if "WORLD_SIZE" not in os.environ:
        return HashStore(), 0, 1
    store, rank, world_size = next(rendezvous("env://", timeout=timeout))
    return store, rank, world_size


def _place() -> str:
    """Return which rank this is, and where all were to connect."""
    get = os.environ.get
    return (
        f"rank: {get('RANK', 0)} of {get('WORLD_SIZE', 1)} on "
        f"{socket.gethostname()}, at: {get('MASTER_ADDR', 'this process')}:"
        f"{get('MASTER_PORT', '')}"
    )
