"""What each device of a layout holds, and what each second of a step is for.

The seconds are those of the fullest device. With m micro-batches, p devices
one behind another and v stages on each (1F1B; interleaved if v > 1)::

    products, kernels    m · what one micro-batch takes, shared equally by p
    messages             m · its allreduces, for which all of a group wait
    launches             m · what blocks wait for their host besides, which is
                         nothing where it launches them in less time
    bubble               (p - 1)/v · a micro-batch and its hops, and what the
                         fullest device has more than its equal share
    hops                 m · 2v · the time to the next stage; none of it where
                         layouts overlap
    gradients            what of the messages of ZeRO is not hidden by the
                         arithmetic, and at least those of one block
    update               42 bytes of memory for each parameter, by Adam

ZeRO sends for each parameter, over the ring of the replicas::

    stage 0   4 bytes to all and back (an allreduce)
    stage 1   4 bytes reduced and scattered, 2 gathered, once a step
    stage 2   4 reduced and scattered for each micro-batch, 2 gathered
    stage 3   4 reduced and scattered, 2 gathered twice, for each micro-batch

What is sent for each micro-batch goes block by block, each time round the
whole ring (``zero_messages``).

Messages are hidden by the arithmetic of the last micro-batch (backward) and
the first (forward), together as long as one; for stages 2 and 3 by all.

Not modelled: what messages take from the arithmetic that they overlap with,
the heat of a GPU, waiting for data, faults; in memory: what an allocator and
libraries need. So a tenth of the memory is left free.

Source:
    theory.pipelines.bubble, theory.collectives.library and theory.sharding.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import fsum, gcd
from typing import NamedTuple

from dpbook.formulas.sharding import SHARDED_FROM, WHOLE_BLOCKS
from dpbook.planner.layouts import Layout, all_layouts
from dpbook.planner.networks import Network
from dpbook.planner.work import NUM_BYTES, SUSTAINED, BlockWork, work
from dpbook.planner.zero_messages import BY_BLOCK, ZeroMessages
from dpkit.theory.collectives.library import even_seconds
from dpkit.theory.hardware import HOSTS, Host
from dpkit.theory.hardware.clusters import Cluster
from dpkit.theory.hardware.costs import copy_seconds
from dpkit.theory.pipelines.bubble import in_flight

GRADIENT_BYTES = 4  # gradients are added up in float32
# Read gradients for their norm 4; Adam: four in, three out 28; weights to 16
# bits 6; zero the gradients 4.
UPDATE_BYTES = 42


class StepMemory(NamedTuple):
    """The bytes of the fullest device, by what they are for."""

    weights: float
    gradients: float
    state: float
    activations: float

    @property
    def total(self) -> float:
        """All of the bytes."""
        return fsum(self)


class StepSeconds(NamedTuple):
    """The seconds of a step, by what they are for."""

    products: float
    kernels: float
    messages: float
    launches: float
    bubble: float
    hops: float
    gradients: float

    @property
    def total(self) -> float:
        """The seconds of the whole step."""
        return fsum(self)


class LayoutParts(NamedTuple):
    """What a device does for a micro-batch: its seconds, and what it keeps."""

    block: BlockWork  #: what a block takes
    ends: BlockWork  #: what is before and behind the blocks
    messages: float  #: the allreduces of a block
    launched: float  #: what the host takes to launch a block
    hop: float  #: the way to the next stage

    @property
    def waiting(self) -> float:
        """The seconds that a device waits for its host to launch a block."""
        return max(0.0, self.launched - self.block.seconds - self.messages)

    @property
    def one(self) -> float:
        """The seconds of a block: those of the device, or of a slower host."""
        return max(self.block.seconds + self.messages, self.launched)


@dataclass
class Case:
    """A network, the examples of a step, and a cluster.

    Example:
        405 billion parameters as they were trained, on 16,384 H100s:

        >>> from dpbook.planner.networks import NETWORKS
        >>> from dpkit.theory.hardware.clusters import cluster
        >>> many = cluster(16_384, "h100", "nvlink4", ranks_per_node=8,
        ...                network="infiniband400")
        >>> case = Case(NETWORKS["405B"], 2048, many, attention="flash")
        >>> layout = Layout(128, 8, 16, chunks=8, zero=2)
        >>> f"{case.memory(layout).total / 2**30:.1f} GiB"
        '72.5 GiB'
        >>> f"{case.seconds(layout).total:.1f} s"
        '7.0 s'
    """

    network: Network  #: what is trained
    batch: int  #: the examples of a step, over all devices
    cluster: Cluster  #: on what
    #: The part of a device's memory that a layout may fill. A tenth is left
    #: for what is not modelled: assumed.
    share: float = 0.9
    #: What it costs to launch a block of a program in eager PyTorch.
    #: None stands for a compiled program or a CUDA graph, whose launches take
    #: no time here. The host of the cluster is for bare operations, and is
    #: not asked.
    host: Host | None = HOSTS["eager-program"]
    #: The part of the rate of products that the run keeps. None stands for
    #: what long runs kept on such devices, ``SUSTAINED``.
    sustained: float | None = None
    #: The kernel of attention that a run of its time had, such as "flash". ""
    #: stands for the one that the cards take today.
    attention: str = ""
    #: The messages by which replicas share what ZeRO-2 or 3 divides.
    zero_messages: ZeroMessages = BY_BLOCK
    _parts: dict[tuple[object, ...], LayoutParts] = field(
        default_factory=dict, repr=False
    )
    _sums: dict[tuple[str, int, int, float], float] = field(
        default_factory=dict, repr=False
    )

    def parts(self, layout: Layout) -> LayoutParts:
        """Return the parts of a layout's step, for one micro-batch.

        Many layouts have the same, so that they are computed once.
        """
        key = (
            layout.tensor,
            layout.pipeline == 1,
            layout.micro_batch,
            layout.recompute,
            layout.sequence_parallel,
        )
        if key not in self._parts:
            net = self.network
            gpu = self.cluster.accelerator
            block, ends = (
                work(
                    counts,
                    gpu,
                    net.dtype,
                    sustained=self.kept_rate,
                    kernel=self.attention,
                )
                for counts in (net.block(layout), net.ends(layout))
            )
            launched = 0.0
            if self.host is not None:
                launched = block.counts.launches.seconds(self.host)
            self._parts[key] = LayoutParts(
                block=block,
                ends=ends,
                messages=self._messages(layout, block),
                launched=launched,
                hop=self._hop(layout, block),
            )
        return self._parts[key]

    @property
    def kept_rate(self) -> float:
        """The part of the rate of products that the run keeps."""
        if self.sustained is not None:
            return self.sustained
        return SUSTAINED.get(self.cluster.accelerator.name, 1.0)

    def blocks_of(self, layout: Layout) -> int:
        """Return how many blocks the device with the most blocks has."""
        stages = layout.pipeline * layout.chunks
        return -(-self.network.num_blocks // stages) * layout.chunks

    def parameters_of(self, layout: Layout) -> float:
        """Return how many parameters the fullest device has, before ZeRO.

        It is the one that also has the embedding.
        """
        block, ends, *_ = self.parts(layout)
        count = self.blocks_of(layout)
        # Where blocks are missing, they are missing at the ends.
        if count * layout.pipeline > self.network.num_blocks + 1:
            count -= 1
        return count * block.counts.parameters + ends.counts.parameters

    def micro_batches(self, layout: Layout) -> int:
        """Return how many micro-batches a replica computes in a step: m."""
        return self.batch // (layout.data * layout.micro_batch)

    def memory(self, layout: Layout) -> StepMemory:
        """Return the bytes of the device that holds most, by purpose."""
        d = layout.data
        p = layout.pipeline
        v = layout.chunks
        block, ends, *_ = self.parts(layout)
        number = self.parameters_of(layout)
        sizes = {
            "parameters": NUM_BYTES,
            "gradients": GRADIENT_BYTES,
            "state": self.network.state_bytes,
        }
        weights, gradients, state = (
            size * number / (d if layout.zero >= SHARDED_FROM[name] else 1)
            for name, size in sizes.items()
        )
        # Blocks at work are whole.
        whole = block.counts.parameters
        if layout.zero == 3:
            weights += len(WHOLE_BLOCKS) * NUM_BYTES * whole
        elif layout.zero == 2:
            gradients += 2 * GRADIENT_BYTES * whole
        name = "interleaved" if v > 1 else "1f1b"
        flying = in_flight(
            name,
            num_devices=p,
            num_micro_batches=self.micro_batches(layout),
            rank=0,
            chunks=v,
        )
        kept = flying * self.blocks_of(layout) / v * block.counts.kept
        activations = kept + block.counts.again + ends.counts.kept
        return StepMemory(weights, gradients, state, activations)

    @property
    def room(self) -> float:
        """The bytes of a device that a layout may fill."""
        return self.share * self.cluster.accelerator.memory_bytes

    def seconds(self, layout: Layout) -> StepSeconds:
        """Return the seconds of a step, by what they are for."""
        p = layout.pipeline
        v = layout.chunks
        m = self.micro_batches(layout)
        parts = self.parts(layout)
        block = parts.block
        ends = parts.ends
        number = self.network.num_blocks
        most = self.blocks_of(layout)
        one = parts.one
        even = (number * one + ends.seconds) / p
        # The ends stand where blocks are missing, if any are.
        missing = min(1, most * p - number)
        slowest = max(most * one, (most - missing) * one + ends.seconds)
        bubble = (p - 1) / v * (even + 2 * v * parts.hop) + m * (
            slowest - even
        )
        update = self._update(layout)
        return StepSeconds(
            products=m / p * (number * block.products + ends.products),
            kernels=m / p * (number * block.kernels + ends.kernels) + update,
            messages=m / p * number * parts.messages,
            launches=m / p * number * parts.waiting,
            bubble=bubble,
            hops=0.0 if layout.overlap else m * 2 * v * parts.hop,
            gradients=self._gradients(layout, slowest),
        )

    def layouts(self) -> Iterator[Layout]:
        """Yield all layouts of the cluster's devices.

        A tensor group never spans two nodes.
        """
        count = self.cluster.num_devices
        net = self.network
        node = self.cluster.ranks_per_node or count
        most = gcd(node, net.most_tensor)
        yield from all_layouts(
            count,
            self.batch,
            blocks=net.num_blocks,
            most_tensor=most,
            most_micro_batch=net.most_micro_batch,
            recompute=net.recompute,
        )

    def _messages(self, layout: Layout, block: BlockWork) -> float:
        """Return the seconds of the collectives of a block, by micro-batch."""
        counts = block.counts
        halves = ("reduce_scatter", "allgather")
        names = halves if layout.sequence_parallel else ("allreduce",)
        return counts.num_sums * fsum(
            self._sum(name, layout.tensor, 1, counts.summed) for name in names
        )

    def _sum(self, name: str, ranks: int, stride: int, n: float) -> float:
        """Return the seconds of a collective on evenly spaced devices.

        Many layouts ask for the same, so that it is computed once.
        """
        key = name, ranks, stride, n
        if key not in self._sums:
            self._sums[key] = even_seconds(*key, self.cluster)
        return self._sums[key]

    def _hop(self, layout: Layout, block: BlockWork) -> float:
        """Return the seconds of a micro-batch's message to the next stage."""
        if layout.pipeline == 1:
            return 0.0
        node = self.cluster.ranks_per_node or self.cluster.num_devices
        inside = layout.num_devices <= node
        link = self.cluster.link if inside else self.cluster.network
        seconds = copy_seconds(link, block.counts.border)
        if layout.tensor > 1 and not layout.sequence_parallel:
            t = layout.tensor
            whole = layout.tensor * block.counts.border
            seconds += self._sum("allgather", t, 1, whole)
        return seconds

    def _update(self, layout: Layout) -> float:
        accelerator = self.cluster.accelerator
        number = self.parameters_of(layout)
        rate = accelerator.bytes_per_second * accelerator.achieved_bytes
        shared = layout.data if layout.zero else 1
        return UPDATE_BYTES * number / shared / rate

    def _gradients(self, layout: Layout, one: float) -> float:
        """Return the seconds of messages of replicas that nothing hides."""
        if layout.data == 1:
            return 0.0
        m = self.micro_batches(layout)
        stage = layout.zero
        times = m if stage > 1 else 1  # that gradients are reduced
        seconds = times * self._reducing(layout)
        seconds += (0, 1, 1, m)[stage] * self._gathering(layout)
        if not layout.overlap:
            return seconds
        hidden = one * (m if stage > 1 else 1 if stage else 2 / 3)
        return max(seconds / times / self.blocks_of(layout), seconds - hidden)

    def _reducing(self, layout: Layout) -> float:
        """Return the seconds in which all gradients are reduced once."""
        number = self.parameters_of(layout)
        if layout.zero > 1:
            of_block = self.zero_messages
            count = of_block.reductions * self.blocks_of(layout)
            num_bytes = of_block.gradient_bytes * number
            return self._each(count, "reduce_scatter", layout, num_bytes)
        name = "reduce_scatter" if layout.zero else "allreduce"
        group = layout.data, layout.tensor
        return self._sum(name, *group, GRADIENT_BYTES * number)

    def _gathering(self, layout: Layout) -> float:
        """Return the seconds of gathering weights: once a step or m times."""
        num_bytes = NUM_BYTES * self.parameters_of(layout)
        if layout.zero == 3:
            of_block = self.zero_messages
            count = of_block.gathers * self.blocks_of(layout)
            num_bytes *= of_block.gathered
            return self._each(count, "allgather", layout, num_bytes)
        return self._sum("allgather", layout.data, layout.tensor, num_bytes)

    def _each(
        self, count: int, name: str, layout: Layout, num_bytes: float
    ) -> float:
        """Return the seconds of equal messages, one after another.

        Each goes round the whole ring of the replicas.
        """
        d = layout.data
        ring = self._sum(name, d, layout.tensor, num_bytes / count)
        return count * (ring + self.zero_messages.host_seconds(d))
