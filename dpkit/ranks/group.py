"""A process group of the backend "sim": what PyTorch calls, as meetings.

PyTorch makes an object of this class on each rank for each group. The
objects of one group find each other by its name and its ranks.
"""

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import distributed_c10d as c10d

from dpkit import streams
from dpkit.ranks import sending
from dpkit.ranks.layouts import check_layouts
from dpkit.ranks.meetings import Brought, Meeting
from dpkit.ranks.modes import shown_as
from dpkit.ranks.reductions import check_reduction, reduction_of
from dpkit.ranks.works import SimWork
from dpkit.ranks.world import World
from dpkit.sim.configuration import simulation
from dpkit.sim.memory import tensors_in
from dpkit.sim.sending import check_rank
from dpkit.sim.streams import current_stream

Tensors = Sequence[Tensor]
Parts = Sequence[Tensors]
_Group: Any = dist.ProcessGroup  # whose annotations differ by version


def _in_place(kind: str) -> Callable[..., SimWork]:
    """Return an operation that reads and writes the same tensors."""
    return lambda self, xs, opts: self._meet(kind, xs, xs, opts, xs)


def _each(one: Callable[..., SimWork]) -> Callable[..., SimWork]:
    """Return an operation that does another several times, with one work."""

    def run(self: Any, outs: Any, xs: Tensors, opts: Any = None) -> Any:
        works = [one(self, *pair, opts) for pair in zip(outs, xs)]
        return self._work([m for w in works for m in w.meetings], outs)

    return run


class SimGroup(_Group):  # type: ignore[misc]
    """A process group of ranks that take turns in one process.

    Its operations are those that PyTorch calls, by the names and with the
    arguments of PyTorch's own: what they write to, what they read, and
    options. Each returns before it is over.
    """

    def __init__(self, options: Any, world: World, rank: int) -> None:
        self._size, self._place = options.group_size, options.group_rank
        super().__init__(self._place, self._size)
        self._name, self._world, self._rank = options.group_id, world, rank
        self._ranks = tuple(options.global_ranks_in_group or range(self._size))
        # What the ranks of the group are at. A name alone is not unique.
        self._meetings = world.add(self, self._name, self._ranks)
        self._counts: dict[Any, int] = {}  # of operations, by pair and place
        self._together: list[Meeting] | None = None  # that are joined

    def free(self) -> None:
        """Drop every reference to tensors; see ``World.free``."""
        self._meetings.clear()
        self._together = None

    @cached_property
    def _way(self) -> str:
        """The name of the streams that it sends on, which no other has here.

        It is that of its dimension of a mesh, or "world", or "group 3".
        """
        usual = {"default_pg": "world", "undefined": f"group {self._name}"}
        words = self.group_desc.removeprefix("mesh_")
        return self._world.way_of(
            self._rank, self._name, usual.get(words, words)
        )

    group_name = property(lambda self: self._name)
    supports_coalescing = property(lambda self: True)
    supports_splitting = property(lambda self: False)
    getBackendName = lambda self: "sim"  # noqa: E731, N815
    size = lambda self: self._size  # noqa: E731
    rank = lambda self: self._place  # noqa: E731
    _get_backend = lambda self, device: self  # noqa: E731
    shutdown = lambda self: None  # noqa: E731
    monitored_barrier = lambda self, *_, **__: self.barrier().wait()  # noqa: E731

    @property
    def _device_types(self) -> list[torch.device]:
        # While PyTorch makes the group, none: it would record what is sent.
        made = self in c10d._world.pg_map
        return [torch.device("sim"), torch.device("cpu")] if made else []

    allreduce = shown_as("allreduce_")(_in_place("allreduce"))
    allreduce_coalesced = shown_as("allreduce_coalesced_")(
        _in_place("allreduce")
    )
    broadcast = shown_as("broadcast_")(_in_place("broadcast"))
    reduce = shown_as("reduce_")(_in_place("reduce"))

    @shown_as("allgather_")
    def allgather(self, outs: Parts, xs: Tensors, opts: Any = None) -> SimWork:
        """Give all ranks the tensors of all."""
        return self._meet("allgather", (outs[0], xs[0]), outs)

    @shown_as("allgather_coalesced_")
    def allgather_coalesced(
        self, outs: Parts, xs: Tensors, opts: Any = None
    ) -> SimWork:
        """Give all ranks the lists of all; ``outs[r]`` takes rank r's."""
        taken = [[out[i] for out in outs] for i in range(len(xs))]
        works = [
            self._meet("allgather", pair, outs) for pair in zip(taken, xs)
        ]
        return self._work([m for w in works for m in w.meetings], outs)

    @shown_as("_allgather_base_")
    def all_gather_single(
        self, out: Tensor, x: Tensor, opts: Any = 0
    ) -> SimWork:
        """Give all ranks the tensors of all, one behind another."""
        return self._meet("allgather", ([out], x), [out], None, [x])

    @shown_as("reduce_scatter_")
    def reduce_scatter(self, outs: Tensors, xs: Parts, opts: Any) -> SimWork:
        """Give rank r the sum of the tensors r of all."""
        return self._meet("reduce_scatter", (outs[0], xs[0]), outs, opts)

    @shown_as("_reduce_scatter_base_")
    def reduce_scatter_single(
        self, out: Tensor, x: Tensor, opts: Any
    ) -> SimWork:
        """Give rank r part r of the sum."""
        return self._meet("reduce_scatter", (out, [x]), [out], opts, [x])

    @shown_as("alltoall_")
    def alltoall(self, outs: Tensors, xs: Tensors, _: Any = None) -> SimWork:
        """Give rank s the tensor s of each."""
        return self._meet("all_to_all", (outs, xs), outs)

    @shown_as("alltoall_base_")
    def all_to_all_single(
        self, out: Tensor, x: Tensor, outs: list[int], xs: list[int], *_: Any
    ) -> SimWork:
        """Give rank s part s of each; without sizes the parts are equal."""
        parts = [
            whole.split(sizes or [whole.size(0) // self._size] * self._size)
            for whole, sizes in ((out, outs), (x, xs))
        ]
        return self._meet("all_to_all", parts, [out])

    @shown_as("scatter_")
    def scatter(self, outs: Tensors, xs: Parts, opts: Any) -> SimWork:
        """Give rank r the tensor r of the root."""
        brought = outs[0], xs[0] if xs else []
        return self._meet("scatter", brought, outs, opts, outs)

    @shown_as("gather_")
    def gather(self, outs: Parts, xs: Tensors, opts: Any) -> SimWork:
        """Give the root the tensors of all."""
        brought = outs[0] if outs else [], xs[0]
        return self._meet("gather", brought, outs, opts, xs)

    @shown_as("barrier")
    def barrier(self, opts: Any = None) -> SimWork:
        """Hold the hosts until all have come, with what they had issued."""
        stream = current_stream(torch.device("sim", self._rank))
        if not stream.record_event().is_passed():
            stream.synchronize()
        return self._meet("barrier", self._rank, [])

    def _start_coalescing(self, device: Any = None) -> None:
        self._together = []

    def _end_coalescing(self, device: Any = None) -> SimWork:
        meetings, self._together = self._together or [], None
        return self._work(meetings, [])

    all_gather_single_coalesced = shown_as("allgather_into_tensor_coalesced_")(
        _each(all_gather_single)
    )
    reduce_scatter_single_coalesced = shown_as(
        "reduce_scatter_tensor_coalesced_"
    )(_each(reduce_scatter_single))

    # The names of older versions of PyTorch.
    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single

    @shown_as("send")
    def send(self, xs: Tensors, target: int, tag: int = 0) -> SimWork:
        """Send to a rank of the group."""
        return self._pair(0, self._place, target, tag, xs)

    @shown_as("recv_")
    def recv(self, xs: Tensors, source: int, tag: int = 0) -> SimWork:
        """Receive from a rank of the group."""
        return self._pair(1, source, self._place, tag, xs)

    def recv_anysource(self, xs: Tensors, tag: int = 0) -> SimWork:
        """Refuse to take what comes first."""
        raise NotImplementedError("recv needs a source on the backend sim")

    def _pair(
        self, place: int, source: int, target: int, tag: int, xs: Tensors
    ) -> SimWork:
        for rank in (source, target):
            if not 0 <= rank < self._size:
                raise ValueError(
                    f"there is no such rank in the group (rank: {rank}, "
                    f"ranks: 0 to {self._size - 1})"
                )
        told = f"{self._ranks[source]} → {self._ranks[target]}, tag {tag}"
        return self._meet("message", xs[0], xs, None, xs, (told, place))

    def _meet(
        self,
        kind: str,
        brought: Any,
        outs: Any,
        opts: Any = None,
        alike: Tensors = (),
        pair: tuple[str, int] | None = None,
    ) -> SimWork:
        """Come to the next operation of all ranks, or of a pair.

        Ranks have to agree on the options, and on the shapes and dtypes of
        the tensors that are ``alike``. ``pair`` is the name of a pair, and
        the place of this rank in it.
        """
        how, tensors = _settings(opts), list(tensors_in(brought))
        check_rank(self._rank)
        if "op" in how:
            check_reduction(tensors, **how)
        if kind != "message":
            check_layouts(brought)
        who, place = end = pair or ("", self._place)
        number = self._counts[end] = self._counts.get(end, -1) + 1
        own = self._issue(kind, brought)
        call = _told(kind, how, alike, tensors, who)
        meeting = self._meeting(kind, number, who, call)
        send = vars(sending)[f"send_{kind}"]
        run = partial(send, algorithm=self._world.algorithm, **how)
        try:
            with torch.no_grad():
                meeting.come(place, own, run)
        finally:
            if meeting.is_over:
                del self._meetings[who, number]
        if self._together is not None:
            self._together.append(meeting)
        return self._work([meeting], outs)

    def _meeting(self, kind: str, number: int, who: str, call: str) -> Meeting:
        """Return an operation that a rank comes to; refuse another call."""
        what = f"{kind} {who}".strip()
        place = f"number {number} of group {self._name}"
        size = 2 if who else self._size
        # A pair has other streams than the group.
        way = f"{self._way} {who}".strip().removesuffix(", tag 0")
        new = Meeting(f"{what} {place}", call, self._rank, size, way)
        meeting = self._meetings.setdefault((who, number), new)
        if meeting.call != call:
            raise RuntimeError(
                f"ranks call different operations (rank {meeting.caller}: "
                f"{meeting.call}, rank {self._rank}: {call}; {place})"
            )
        return meeting

    def _issue(self, kind: str, brought: Any) -> Brought:
        """Launch an operation on the clock, for the tensors of this rank."""
        own = f"sim:{self._rank}"
        found = {str(x.device) for x in tensors_in(brought)} or {"cpu"}
        if found not in ({own}, {"cpu"}):
            raise RuntimeError(
                f"rank {self._rank} sends or receives what is not all on its "
                f"device, nor on the CPU ({', '.join(sorted(found))})"
            )
        device = torch.device(*found)
        if device.type == "sim":
            simulation.clock.hosts.launch(device.index, kind)
        begin = streams.record_event(device)
        return Brought(self._rank, brought, device, begin)

    def _work(self, meetings: Sequence[Meeting], outs: Any) -> SimWork:
        return SimWork(self._world.turns, self._rank, meetings, outs)


def _settings(opts: Any) -> dict[str, Any]:
    """Return what PyTorch's options say: the root, what to reduce by."""
    found: dict[str, Any] = {}
    if hasattr(opts, "reduceOp"):
        found |= reduction_of(opts.reduceOp)
    if hasattr(opts, "rootRank"):
        found["root"] = opts.rootRank
    return found


def _told(
    kind: str, how: dict[str, Any], alike: Tensors, all_: Tensors, pair: str
) -> str:
    """Return a call in words: "allreduce(op=sum) of (2, 3) float32"."""
    told = ", ".join(f"{name}={value}" for name, value in how.items())
    told = f"{kind}({told})" if told else kind
    # A pair has to agree on the number alone.
    sizes = [(x.numel() if pair else tuple(x.shape), x.dtype) for x in alike]
    what = [f"{n} {dtype}" for n, dtype in sizes]
    told += " of " + ", ".join(what or sorted({str(x.dtype) for x in all_}))
    told += " on the CPU" if {x.device.type for x in all_} == {"cpu"} else ""
    return told.replace("torch.", "").removesuffix(" of ")
