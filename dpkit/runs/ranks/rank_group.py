"""What PyTorch calls of a process group of the backend "sim", and its checks.

PyTorch makes an object on each rank for each group: a ``SimGroup`` (``group``)
or, where each rank is a process, a ``ForkedGroup`` (``dpkit.runs.forked``).
Both are a ``RankGroup``, and perform in their own way what is called here.
"""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, Generic, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import distributed_c10d as c10d

from dpkit.arguments import check_strided
from dpkit.runs.ranks.memory_layouts import check_dtypes, check_layouts
from dpkit.runs.ranks.modes import dispatched_as
from dpkit.runs.ranks.reductions import check_reduction, reduction_of
from dpkit.runs.ranks.works import Called, RankWork, note_time_limit
from dpkit.sim.containers import tensors_in
from dpkit.sim.devices import names
from dpkit.sim.streams import check_rank, current_stream
from dpkit.sim.tensors import on_device

Tensors = Sequence[Tensor]
Parts = Sequence[Tensors]
_Group: Any = dist.ProcessGroup  # whose annotations differ by version


class PairEnd(NamedTuple):
    """One end of a pair of ranks that send messages, in order."""

    pair: str  # "0 → 3, tag 0"; "" for the whole group
    group_rank: int  # 0 sends, 1 receives; in the whole group the rank in it


class CollectiveCall(NamedTuple):
    """What a rank calls, apart from its tensors."""

    kind: str  # a key of ``SENDERS``, such as "allreduce"
    how: dict[str, Any]  # the root, what to reduce by
    agreed: str  # all that ranks have to agree on
    end: PairEnd


class RankGroup(_Group, Generic[Called]):  # type: ignore[misc]
    """A process group of a rank: what PyTorch calls, checked.

    Its operations are those that PyTorch calls, by the names and with the
    arguments of PyTorch's own: what they write to, what they read, and
    options. Each returns before it is over.

    Args:
        options: Those of PyTorch.
        rank: The number of the rank, among all.
    """

    is_fake = False  # of several ranks, on the backend that sends nothing

    def __init__(self, options: Any, rank: int) -> None:
        self._size = options.group_size
        self._group_rank = options.group_rank
        super().__init__(self._group_rank, self._size)
        self._name = options.group_id
        self._rank = rank
        self._ranks = tuple(options.global_ranks_in_group or range(self._size))
        # Those that are joined in one work, while PyTorch asks for that.
        self._coalesced: list[Called] | None = None

    # -- what PyTorch asks of a group

    @property
    def group_name(self) -> str:
        """The name that PyTorch has given to the group."""
        return str(self._name)

    @property
    def supports_coalescing(self) -> bool:
        """Whether several operations can be joined in one work."""
        return True

    @property
    def supports_splitting(self) -> bool:
        """Whether PyTorch may make a smaller group by splitting this one."""
        return False

    @property
    def _device_types(self) -> list[torch.device]:
        # While PyTorch makes the group, none: it would record what is sent.
        made = self in c10d._world.pg_map
        return [torch.device("sim"), torch.device("cpu")] if made else []

    def getBackendName(self) -> str:  # noqa: N802
        """Return the name of the backend."""
        return "sim"

    def _get_backend(self, device: torch.device) -> "RankGroup[Called]":
        return self

    def size(self) -> int:
        """Return the number of ranks in the group."""
        return int(self._size)

    def rank(self) -> int:
        """Return the number of this rank in the group."""
        return int(self._group_rank)

    def shutdown(self) -> None:
        """Do nothing: there is no connection to close."""

    # -- collectives that read and write the same tensors

    @dispatched_as("allreduce_")
    def allreduce(self, xs: Tensors, opts: Any) -> RankWork[Called]:
        """Reduce the tensor of all ranks, on all ranks."""
        xs = [on_device(x) for x in xs]
        return self._call("allreduce", xs, outs=xs, opts=opts, alike=xs)

    @dispatched_as("allreduce_coalesced_")
    def allreduce_coalesced(self, xs: Tensors, opts: Any) -> RankWork[Called]:
        """Reduce the first tensors of all, then the second ones, …."""
        return self._call("allreduce", xs, outs=xs, opts=opts, alike=xs)

    @dispatched_as("broadcast_")
    def broadcast(self, xs: Tensors, opts: Any) -> RankWork[Called]:
        """Give all ranks the tensor of the root."""
        return self._call("broadcast", xs, outs=xs, opts=opts, alike=xs)

    @dispatched_as("reduce_")
    def reduce(self, xs: Tensors, opts: Any) -> RankWork[Called]:
        """Reduce the tensor of all ranks, on the root."""
        return self._call("reduce", xs, outs=xs, opts=opts, alike=xs)

    # -- collectives of parts

    @dispatched_as("allgather_")
    def allgather(
        self, outs: Parts, xs: Tensors, opts: Any = None
    ) -> RankWork[Called]:
        """Give all ranks the tensors of all."""
        return self._call("allgather", (outs[0], xs[0]), outs)

    @dispatched_as("allgather_coalesced_")
    def allgather_coalesced(
        self, outs: Parts, xs: Tensors, opts: Any = None
    ) -> RankWork[Called]:
        """Give all ranks the lists of all; ``outs[r]`` takes rank r's."""
        taken = [[out[i] for out in outs] for i in range(len(xs))]
        works = [
            self._call("allgather", pair, outs) for pair in zip(taken, xs)
        ]
        return self._joined(works, outs)

    @dispatched_as("_allgather_base_")
    def all_gather_single(
        self, out: Tensor, x: Tensor, opts: Any = 0
    ) -> RankWork[Called]:
        """Give all ranks the tensors of all, one behind another."""
        return self._call("allgather", ([out], x), [out], alike=[x])

    @dispatched_as("allgather_into_tensor_coalesced_")
    def all_gather_single_coalesced(
        self, outs: Tensors, xs: Tensors, opts: Any = None
    ) -> RankWork[Called]:
        """Gather several tensors, with one work for all."""
        works = [
            self.all_gather_single(out, x, opts) for out, x in zip(outs, xs)
        ]
        return self._joined(works, outs)

    @dispatched_as("reduce_scatter_")
    def reduce_scatter(
        self, outs: Tensors, xs: Parts, opts: Any
    ) -> RankWork[Called]:
        """Give rank r the sum of the tensors r of all."""
        return self._call("reduce_scatter", (outs[0], xs[0]), outs, opts=opts)

    @dispatched_as("_reduce_scatter_base_")
    def reduce_scatter_single(
        self, out: Tensor, x: Tensor, opts: Any
    ) -> RankWork[Called]:
        """Give rank r part r of the sum."""
        return self._call(
            "reduce_scatter", (out, [x]), [out], opts=opts, alike=[x]
        )

    @dispatched_as("reduce_scatter_tensor_coalesced_")
    def reduce_scatter_single_coalesced(
        self, outs: Tensors, xs: Tensors, opts: Any = None
    ) -> RankWork[Called]:
        """Reduce and scatter several tensors, with one work for all."""
        works = [
            self.reduce_scatter_single(out, x, opts)
            for out, x in zip(outs, xs)
        ]
        return self._joined(works, outs)

    @dispatched_as("alltoall_")
    def alltoall(
        self, outs: Tensors, xs: Tensors, _: Any = None
    ) -> RankWork[Called]:
        """Give rank s tensor s of the list of each rank."""
        return self._call("all_to_all", (outs, xs), outs)

    @dispatched_as("alltoall_base_")
    def all_to_all_single(
        self, out: Tensor, x: Tensor, outs: list[int], xs: list[int], *_: Any
    ) -> RankWork[Called]:
        """Give rank s part s of each.

        Args:
            out: What this rank takes, one part behind another.
            x: What it gives.
            outs: The sizes of the parts of ``out``, along its first axis.
                Empty: all are equal.
            xs: The sizes of the parts of ``x``, in the same way.
            *_: PyTorch's options, which are not looked at.
        """
        equal = [out.size(0) // self._size] * self._size
        taken = out.split(outs or equal)
        equal = [x.size(0) // self._size] * self._size
        given = x.split(xs or equal)
        return self._call("all_to_all", [taken, given], [out])

    @dispatched_as("scatter_")
    def scatter(self, outs: Tensors, xs: Parts, opts: Any) -> RankWork[Called]:
        """Give rank r the tensor r of the root."""
        tensors = outs[0], xs[0] if xs else []
        return self._call("scatter", tensors, outs, opts=opts, alike=outs)

    @dispatched_as("gather_")
    def gather(self, outs: Parts, xs: Tensors, opts: Any) -> RankWork[Called]:
        """Give the root the tensors of all."""
        tensors = outs[0] if outs else [], xs[0]
        return self._call("gather", tensors, outs, opts=opts, alike=xs)

    @dispatched_as("barrier")
    def barrier(self, opts: Any = None) -> RankWork[Called]:
        """Hold the hosts until all have arrived, with what they had issued."""
        stream = current_stream(torch.device("sim", self._rank))
        if not stream.record_event().is_passed():
            stream.synchronize()
        return self._call("barrier", self._rank, [])

    def monitored_barrier(
        self, timeout: Any = None, wait_all_ranks: bool = False
    ) -> bool:
        """Wait for a barrier; the time limit is not looked at.

        All ranks that are missing are named in any case.
        """
        if timeout is not None:
            note_time_limit()
        return bool(self.barrier().wait())

    def _start_coalescing(self, device: Any = None) -> None:
        self._coalesced = []

    def _end_coalescing(self, device: Any = None) -> RankWork[Called]:
        collectives = self._coalesced or []
        self._coalesced = None
        return self._work(collectives, [])

    # The names of older versions of PyTorch.
    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single

    # -- messages

    @dispatched_as("send")
    def send(self, xs: Tensors, target: int, tag: int = 0) -> RankWork[Called]:
        """Send to a rank of the group."""
        return self._call_pair(
            0, source=self._group_rank, target=target, tag=tag, xs=xs
        )

    @dispatched_as("recv_")
    def recv(self, xs: Tensors, source: int, tag: int = 0) -> RankWork[Called]:
        """Receive from a rank of the group."""
        return self._call_pair(
            1, source=source, target=self._group_rank, tag=tag, xs=xs
        )

    def recv_anysource(self, xs: Tensors, tag: int = 0) -> RankWork[Called]:
        """Refuse a receive that names no source.

        Raises:
            NotImplementedError: in any case.
        """
        raise NotImplementedError("recv needs a source on the backend sim")

    # -- what they have in common

    def _call_pair(
        self,
        group_rank: int,
        *,
        source: int,
        target: int,
        tag: int,
        xs: Tensors,
    ) -> RankWork[Called]:
        """Call the next operation of a pair, as its source or its target.

        Args:
            group_rank: 0 for the source, 1 for the target.
            source: The rank in the group that sends.
            target: The rank in the group that receives.
            tag: What tells apart several pairs of the same two ranks.
            xs: A list of the one tensor that is sent, or written to.
        """
        for rank in (source, target):
            if not 0 <= rank < self._size:
                raise ValueError(
                    f"there is no such rank in the group (rank: {rank}, "
                    f"ranks: 0 to {self._size - 1})"
                )
        pair = f"{self._ranks[source]} → {self._ranks[target]}, tag {tag}"
        end = PairEnd(pair, group_rank)
        return self._call("message", xs[0], outs=xs, alike=xs, end=end)

    def _call(
        self,
        kind: str,
        tensors: Any,
        outs: Any,
        *,
        opts: Any = None,
        alike: Tensors = (),
        end: PairEnd | None = None,
    ) -> RankWork[Called]:
        """Contribute to the next operation of all ranks, or of a pair.

        Ranks have to agree on the kind, on the options, and on the shapes and
        dtypes of the tensors that are ``alike``.

        Args:
            kind: A key of ``SENDERS``, such as "allreduce".
            tensors: What this rank contributes, as the sender takes it.
            outs: What the future of the work has as its value.
            opts: PyTorch's options, with the root and what to reduce by.
            alike: The tensors that all ranks have in the same shape.
            end: The end of a pair; None: all ranks of the group.

        Raises:
            RuntimeError: another rank has called something else; or a tensor
                is on another device than that of this rank, or the CPU.
            NotImplementedError: a tensor is sparse, nested or quantized.
            TypeError: a type of tensors is not sent, or not reduced.
            ValueError: a tensor has gaps in memory; or the backend is "fake".
        """
        if self.is_fake:
            raise ValueError(
                "the backend 'fake' sends nothing, and its results would be "
                f"made up (operation: {kind}, ranks: {self._size})"
            )
        how = _settings(opts)
        found = list(tensors_in(tensors))
        check_rank(self._rank)
        for x in found:
            check_strided(x, kind)
        if "op" in how:
            check_reduction(found, **how)
        check_dtypes(found)
        if kind != "message":
            check_layouts(tensors)
        end = end or PairEnd("", self._group_rank)
        agreed = _described(kind, how, alike=alike, all_=found, pair=end.pair)
        call = CollectiveCall(kind, how, agreed, end)
        work = self._perform(call, tensors, outs)
        if self._coalesced is not None:
            self._coalesced += work.pending
        return work

    @abstractmethod
    def _perform(
        self, call: CollectiveCall, tensors: Any, outs: Any
    ) -> RankWork[Called]:
        """Contribute tensors to an operation; return the work to wait for."""

    @abstractmethod
    def _work(self, called: Sequence[Called], outs: Any) -> RankWork[Called]:
        """Return the work by which this rank waits for what it has called."""

    def _joined(
        self, works: Iterable[RankWork[Called]], outs: Any
    ) -> RankWork[Called]:
        """Return one work for the operations of several."""
        return self._work([c for work in works for c in work.pending], outs)

    def _device_of(self, tensors: Any) -> torch.device:
        """Return the device that all tensors of a call lie on.

        Raises:
            RuntimeError: a tensor is neither on the device of this rank nor,
                as all others are, on the CPU.
        """
        own = f"sim:{self._rank}"
        found = {str(x.device) for x in tensors_in(tensors)} or {"cpu"}
        if found not in ({own}, {"cpu"}):
            shown = [str(names.shown(torch.device(name))) for name in found]
            raise RuntimeError(
                f"rank {self._rank} sends or receives what is not all on its "
                f"device, nor on the CPU (devices: {', '.join(sorted(shown))}"
                f", its own: {names.shown(torch.device(own))}); a simulated "
                "rank has one GPU, and a script that is given its number "
                "calls torch.cuda.set_device(LOCAL_RANK)"
            )
        return torch.device(*found)


def _settings(opts: Any) -> dict[str, Any]:
    """Return what PyTorch's options say: the root, what to reduce by."""
    found: dict[str, Any] = {}
    if hasattr(opts, "reduceOp"):
        found |= reduction_of(opts.reduceOp)
    if hasattr(opts, "rootRank"):
        found["root"] = opts.rootRank
    return found


def _described(
    kind: str, how: dict[str, Any], *, alike: Tensors, all_: Tensors, pair: str
) -> str:
    """Return a call in words: "allreduce(op=sum) of (2, 3) float32"."""
    settings = ", ".join(f"{name}={value}" for name, value in how.items())
    text = f"{kind}({settings})" if settings else kind
    # A pair has to agree on the number alone.
    sizes = [(x.numel() if pair else tuple(x.shape), x.dtype) for x in alike]
    what = [f"{n} {dtype}" for n, dtype in sizes]
    text += " of " + ", ".join(what or sorted({str(x.dtype) for x in all_}))
    if {x.device.type for x in all_} == {"cpu"}:
        text += " on the CPU"
    return text.replace("torch.", "").removesuffix(" of ")
