"""A process group of the backend "sim": what PyTorch calls, as meetings.

PyTorch makes an object of this class on each rank for each group. Those of
one group find each other by its name and its ranks.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ReduceOp
from torch.distributed import distributed_c10d as c10d

from dpkit import streams
from dpkit.ranks import sending
from dpkit.ranks.meetings import Brought, Meeting
from dpkit.ranks.works import Work
from dpkit.ranks.world import World
from dpkit.sim.configuration import simulation
from dpkit.sim.memory import tensors_in

KINDS = "sim", "cpu"  # of devices
OPS = {
    ReduceOp.SUM: "sum",
    ReduceOp.AVG: "mean",
    ReduceOp.MAX: "max",
    ReduceOp.MIN: "min",
}
Tensors = list[Tensor]
_Group: Any = dist.ProcessGroup  # whose annotations differ by version


class SimGroup(_Group):  # type: ignore[misc]
    """A process group of ranks that take turns in one process.

    Its operations are those that PyTorch calls, by the names and with the
    arguments of PyTorch's own. Each returns before it is over.
    """

    def __init__(self, options: Any, world: World, rank: int) -> None:
        self._size, self._place = options.group_size, options.group_rank
        super().__init__(self._place, self._size)
        self._name, self._world, self._rank = options.group_id, world, rank
        ranks = options.global_ranks_in_group or range(self._size)
        self._ranks = tuple(ranks)
        # What the ranks of the group are at. A name alone is not unique.
        self._meetings = world.meetings_of(self._name, self._ranks)
        self._counts: dict[Any, int] = {}  # of operations, by their way
        self._together: list[Meeting] | None = None  # that are joined

    # -- what PyTorch asks

    group_name = pg_name = property(lambda self: self._name)
    options = property(lambda self: None)
    supports_splitting = property(lambda self: False)
    supports_coalescing = property(lambda self: True)
    getGroupName = lambda self: self._name  # noqa: E731, N815
    getBackendName = name = lambda self: "sim"  # noqa: N815

    def size(self) -> int:
        """Return how many ranks there are."""
        return int(self._size)

    def rank(self) -> int:
        """Return the number of this rank in the group."""
        return int(self._place)

    @property
    def _device_types(self) -> list[torch.device]:
        # While PyTorch makes the group, none: it would record what is sent.
        made = self in c10d._world.pg_map
        return list(map(torch.device, KINDS)) if made else []

    def _get_backend(self, device: torch.device) -> "SimGroup":
        return self

    def shutdown(self) -> None:
        """Do nothing: there is nothing to close."""

    abort = shutdown

    # -- operations of all ranks

    def allreduce(self, tensors: Tensors, opts: Any) -> Work:
        """Reduce each tensor over all ranks."""
        op = _op(opts)
        return self._meet(sending.allreduce, tensors, tensors, tensors, op=op)

    allreduce_coalesced = allreduce

    def broadcast(self, tensors: Tensors, opts: Any) -> Work:
        """Give all ranks what the root has."""
        root = opts.rootRank
        send = sending.broadcast
        return self._meet(send, tensors, tensors, tensors, root=root)

    def reduce(self, tensors: Tensors, opts: Any) -> Work:
        """Reduce to the root."""
        how = {"op": _op(opts), "root": opts.rootRank}
        return self._meet(sending.reduce, tensors, tensors, tensors, **how)

    def allgather(
        self, outs: list[Tensors], given: Tensors, opts: Any = None
    ) -> Work:
        """Give all ranks the tensors of all."""
        return self._meet(sending.allgather, (outs[0], given[0]), outs)

    def all_gather_single(
        self, out: Tensor, given: Tensor, opts: Any = None
    ) -> Work:
        """Give all ranks the tensors of all, one behind another."""
        return self._meet(sending.allgather, (out, given), [out], [given])

    def reduce_scatter(
        self, outs: Tensors, given: list[Tensors], opts: Any
    ) -> Work:
        """Give rank r the sum of the tensors r of all."""
        brought, op = (outs[0], given[0]), _op(opts)
        return self._meet(sending.reduce_scatter, brought, outs, op=op)

    def reduce_scatter_single(
        self, out: Tensor, given: Tensor, opts: Any
    ) -> Work:
        """Give rank r part r of the sum."""
        brought, op = (out, [given]), _op(opts)
        send = sending.reduce_scatter
        return self._meet(send, brought, [out], [given], op=op)

    def alltoall(
        self, outs: Tensors, given: Tensors, opts: Any = None
    ) -> Work:
        """Give rank s the tensor s of each."""
        return self._meet(sending.all_to_all, (outs, given), outs)

    def all_to_all_single(
        self,
        out: Tensor,
        given: Tensor,
        out_sizes: Sequence[int],
        given_sizes: Sequence[int],
        opts: Any = None,
    ) -> Work:
        """Give rank s part s of each; without sizes the parts are equal."""
        parts = [
            x.split(list(sizes) or x.size(0) // self._size)
            for x, sizes in ((out, out_sizes), (given, given_sizes))
        ]
        return self._meet(sending.all_to_all, parts, [out])

    def scatter(self, outs: Tensors, given: list[Tensors], opts: Any) -> Work:
        """Give rank r the tensor r of the root."""
        brought = outs[0], given[0] if given else []
        root = opts.rootRank
        return self._meet(sending.scatter, brought, outs, outs, root=root)

    def gather(self, outs: list[Tensors], given: Tensors, opts: Any) -> Work:
        """Give the root the tensors of all."""
        brought = outs[0] if outs else [], given[0]
        root = opts.rootRank
        return self._meet(sending.gather, brought, outs, given, root=root)

    def barrier(self, opts: Any = None) -> Work:
        """Let no host go on before all have come."""
        return self._meet(self._barrier, [], [])

    def _barrier(self, xs: list[Any], algorithm: str) -> None:
        simulation.clock.hosts.meet(self._ranks)

    # -- several operations at a time

    def _several(self, name: str, *lists: Any) -> Work:
        *tensors, opts = lists
        works = [getattr(self, name)(*each, opts) for each in zip(*tensors)]
        meetings = [meeting for work in works for meeting in work.meetings]
        return Work(self._world.turns, self._rank, meetings, tensors[0])

    def _start_coalescing(self, device: Any = None) -> None:
        self._together = []

    def _end_coalescing(self, device: Any = None, outs: Any = ()) -> Work:
        meetings, self._together = self._together or [], None
        return Work(self._world.turns, self._rank, meetings, list(outs))

    def all_gather_single_coalesced(self, *args: Any) -> Work:
        """Give all ranks the tensors of all, several at a time."""
        return self._several("all_gather_single", *args)

    def reduce_scatter_single_coalesced(self, *args: Any) -> Work:
        """Give rank r part r of each sum."""
        return self._several("reduce_scatter_single", *args)

    # The names of older versions of PyTorch.
    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single

    # -- from one rank to another

    def send(self, tensors: Tensors, target: int, tag: int = 0) -> Work:
        """Send to a rank of the group."""
        return self._pair((self._place, target, tag), tensors, 0)

    def recv(self, tensors: Tensors, source: int, tag: int = 0) -> Work:
        """Receive from a rank of the group."""
        return self._pair((source, self._place, tag), tensors, 1)

    def _pair(
        self, way: tuple[int, int, int], tensors: Tensors, place: int
    ) -> Work:
        source, target, tag = way
        told = f"{self._ranks[source]} → {self._ranks[target]}, tag {tag}"
        return self._meet(
            sending.message, tensors[0], tensors, tensors, (told, place)
        )

    # -- inside

    def _meet(
        self,
        send: Callable[..., Any],
        brought: Any,
        outs: Any,
        alike: Sequence[Tensor] = (),
        pair: tuple[str, int] | None = None,
        **how: Any,
    ) -> Work:
        """Come to the next operation of all ranks, or of a pair.

        ``alike`` are tensors of which all ranks have to have some of the same
        shape and dtype; ``how`` has what else they have to agree on. ``pair``
        names a pair, and has the place of this rank in it.
        """
        way, place = pair or ("", self._place)
        number = self._counts[way] = self._counts.get(way, -1) + 1
        kind = send.__name__.strip("_")
        call = _told(kind, how, alike)
        meeting = self._meetings.get((way, number))
        if meeting is None:
            what = " ".join(filter(None, (kind, way)))
            name = f"{what} number {number} of group {self._name}"
            size = 2 if pair else self._size
            meeting = Meeting(name, call, self._rank, size, way)
            self._meetings[way, number] = meeting
        elif meeting.call != call:
            raise RuntimeError(
                f"ranks call different operations (rank {meeting.caller}: "
                f"{meeting.call}, rank {self._rank}: {call}; number {number} "
                f"of group {self._name})"
            )
        run = partial(send, algorithm=self._world.algorithm, **how)
        with torch.no_grad():
            meeting.come(place, self._issue(kind, brought), run)
        if meeting.is_over:
            del self._meetings[way, number]
        if self._together is not None:
            self._together.append(meeting)
        return Work(self._world.turns, self._rank, [meeting], outs)

    def _issue(self, kind: str, brought: Any) -> Brought:
        """Launch an operation on the clock, for the tensors of this rank."""
        device = next(iter(tensors_in(brought)), torch.empty(0)).device
        begin = None
        if device.type == "sim":
            if device.index != self._rank:
                raise RuntimeError(
                    f"rank {self._rank} sends what lies on the device of "
                    f"another rank (device: {device}, its own: "
                    f"sim:{self._rank})"
                )
            simulation.clock.hosts.launch(device.index, kind)
            begin = streams.record_event(device)
        return Brought(self._rank, brought, device, begin)


def _op(opts: Any) -> str:
    op = opts.reduceOp.op
    if op not in OPS:
        known = ", ".join(known.name for known in OPS)
        raise NotImplementedError(
            f"the backend sim does not reduce so (op: {op.name}, known: "
            f"{known})"
        )
    return OPS[op]


def _told(kind: str, how: dict[str, Any], alike: Sequence[Tensor]) -> str:
    """Return a call in words: "allreduce(op=sum) of (2, 3) float32"."""
    settings = ", ".join(f"{name}={value}" for name, value in how.items())
    shapes = [
        f"{tuple(x.shape)} {str(x.dtype).removeprefix('torch.')}"
        for x in alike
    ]
    told = f"{kind}({settings})" if settings else kind
    return f"{told} of {', '.join(shapes)}" if shapes else told
