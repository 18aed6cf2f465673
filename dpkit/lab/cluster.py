"""The ranks of a job that ``torchrun`` starts, on one host or on many.

A process alone is a job of one rank. When a rank is lost, the others notice
it by an operation that fails or does not end in time. Which one it was, the
operation does not say: so each calls the roll.

::

    rank 0 on a     allreduce … no end     "rank 0 is here"   rank 1 is silent
    rank 1 on b     (its cable is cut)
"""

from __future__ import annotations

import os
import re
import socket
import threading
import time
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed import (  # type: ignore[attr-defined]
    HashStore,
    PrefixStore,
    Store,
)
from torch.distributed.rendezvous import rendezvous

# How long the others have to answer a roll call, and how often to look.
ROLL_CALL_SECONDS, LOOK_SECONDS = 10.0, 0.05
# gloo raises a RuntimeError that begins with its place, "[/…/pair.cc:538] ".
OF_OTHERS = re.compile(r"\[/|.*(timed? ?out|connection)", re.I | re.S)


@dataclass(frozen=True)
class Ranks:
    """The ranks of a job, seen from one of them.

    Attributes:
        rank: This one.
        device: Where its tensors belong.
        hosts: The name of each rank's host, in order of rank.
        store: What all ranks can read and write.
    """

    rank: int
    device: torch.device
    hosts: list[str]
    store: Store

    @property
    def world_size(self) -> int:
        """The number of ranks."""
        return len(self.hosts)

    def broadcast_bytes(self, content: bytes) -> bytes:
        """Return rank 0's bytes on every rank.

        Args:
            content: One byte or more; what the other ranks give is not used.
        """
        size = torch.tensor(len(content), device=self.device)
        dist.broadcast(size, 0)
        data = torch.empty(int(size), dtype=torch.uint8)
        if self.rank == 0:
            data = torch.frombuffer(bytearray(content), dtype=torch.uint8)
        data = data.to(self.device)
        dist.broadcast(data, 0)
        return bytes(data.cpu().numpy())

    def lost(self, why: str) -> list[int]:
        """Call the roll; return the ranks that do not answer.

        Every rank that misses an answer is to call it. Where not even the
        store answers, all ranks on other hosts are lost to this one; if there
        is no other host, then rank 0, which keeps the store.

        Args:
            why: Why this rank calls, for a debugger to read in the store.
        """
        present: set[int] = set()
        # A store behind a cut cable may hold its reader for ever.
        thread = threading.Thread(
            target=self._call_the_roll, args=(why, present), daemon=True
        )
        thread.start()
        thread.join(ROLL_CALL_SECONDS + 1)
        if self.rank not in present:
            here = self.hosts[self.rank]
            away = [r for r, host in enumerate(self.hosts) if host != here]
            return away or [0]
        return [r for r in range(self.world_size) if r not in present]

    def _call_the_roll(self, why: str, present: set[int]) -> None:
        """Add the ranks that answer to ``present``."""
        deadline = time.monotonic() + ROLL_CALL_SECONDS
        try:
            self.store.set(f"stopped/{self.rank}", why)
            while time.monotonic() < deadline:
                for rank in set(range(self.world_size)) - present:
                    if self.store.check([f"stopped/{rank}"]):
                        present.add(rank)
                if len(present) == self.world_size:
                    return
                time.sleep(LOOK_SECONDS)
        except RuntimeError:
            return  # the store is gone, and who has not answered is lost

    def names(self, ranks: list[int]) -> str:
        """Return "rank 2 on b, rank 3 on b"."""
        return ", ".join(f"rank {r} on {self.hosts[r]}" for r in ranks)


def join(timeout_seconds: float) -> Ranks:
    """Join the ranks that ``torchrun`` has started, or be the only one.

    The default process group is NCCL's where every rank of this host has a
    GPU and ``DPKIT_DEVICES`` does not ask for other devices, else gloo's.

    Args:
        timeout_seconds: How long a rank waits for the others: now, and in
            every operation that they take part in together.

    Returns:
        The ranks.

    Raises:
        ConnectionError: the ranks could not meet.
        ValueError: the environment names a world size, and not what else a
            rank has to know.
    """
    timeout = timedelta(seconds=timeout_seconds)
    device = _device()
    try:
        store, rank, world_size = _meet(timeout)
        dist.init_process_group(
            "gloo" if device.type == "cpu" else "nccl",
            store=PrefixStore("group", store),
            rank=rank,
            world_size=world_size,
            timeout=timeout,
            device_id=None if device.type == "cpu" else device,
        )
        # Names are told now: later, a rank may no longer be there to ask.
        store.set(f"host/{rank}", socket.gethostname())
        hosts = [store.get(f"host/{r}").decode() for r in range(world_size)]
    except RuntimeError as error:
        raise ConnectionError(
            f"the ranks could not meet ({_place()}, timeout: "
            f"{timeout_seconds:g} s, why: {brief(error)}); where hosts have "
            "more networks than one, GLOO_SOCKET_IFNAME and "
            "NCCL_SOCKET_IFNAME name the one that joins them"
        ) from error
    return Ranks(rank, device, hosts, store)


def is_of_others(error: BaseException) -> bool:
    """Tell whether an error says that other ranks did not answer.

    Every other error is this rank's own.
    """
    if isinstance(error, dist.DistError):
        return True
    told = OF_OTHERS.match(str(error))
    return isinstance(error, RuntimeError) and told is not None


def brief(error: BaseException) -> str:
    """Return the first line of what torch tells, without its place."""
    first = str(error).strip().partition("\n")[0]
    return first[first.find("] ") + 1 :].strip() or type(error).__name__


def _meet(timeout: timedelta) -> tuple[Store, int, int]:
    """Return the common store, this rank and the number of ranks."""
    if "WORLD_SIZE" not in os.environ:
        return HashStore(), 0, 1
    store, rank, world_size = next(rendezvous("env://", timeout=timeout))
    return store, rank, world_size


def _place() -> str:
    """Tell which rank this is, and where all were to meet."""
    told = os.environ.get
    return (
        f"rank: {told('RANK', 0)} of {told('WORLD_SIZE', 1)} on "
        f"{socket.gethostname()}, at: {told('MASTER_ADDR', 'this process')}:"
        f"{told('MASTER_PORT', '')}"
    )


def _device() -> torch.device:
    """Return a GPU of this rank's own, or the CPU."""
    others = os.environ.get("DPKIT_DEVICES") in ("cpu", "sim")
    num_local = int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    gpu = torch.accelerator.current_accelerator()
    if others or gpu is None or torch.accelerator.device_count() < num_local:
        return torch.device("cpu")
    index = int(os.environ.get("LOCAL_RANK", 0))  # only on CUDA
    torch.accelerator.set_device_index(index)  # only on CUDA
    return torch.device(gpu.type, index)  # only on CUDA
