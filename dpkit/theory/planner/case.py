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
    gradients            what of the messages of ZeRO does not fit beside the
                         arithmetic, and at least those of one block
    update               42 bytes of memory for each parameter, by Adam

ZeRO sends for each parameter, over the ring of the replicas::

    stage 0   4 bytes to all and back (an allreduce)
    stage 1   4 bytes reduced and scattered, 2 gathered, once a step
    stage 2   4 reduced and scattered for each micro-batch, 2 gathered
    stage 3   4 reduced and scattered, 2 gathered twice, for each micro-batch

Beside the arithmetic fits what the last micro-batch takes (backward) and the
first (forward), together as long as one; for stages 2 and 3 all of them.

Not modelled: what messages take from the arithmetic that they pass beside,
the heat of a GPU, waiting for data, faults; in memory: what an allocator and
libraries need. So a tenth of the memory is left free.

Source:
    theory.pipelines.bubble, theory.collectives.library and theory.sharding.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import fsum, gcd
from typing import NamedTuple

from dpkit.theory.collectives.library import even_seconds
from dpkit.theory.hardware import HOSTS, Host
from dpkit.theory.hardware.clusters import Cluster
from dpkit.theory.hardware.costs import copy_seconds
from dpkit.theory.pipelines.bubble import in_flight
from dpkit.theory.planner.layouts import Layout, all_layouts
from dpkit.theory.planner.networks import Network
from dpkit.theory.planner.work import NUM_BYTES, SUSTAINED, BlockWork, work
from dpkit.theory.sharding import SHARDED_FROM, WHOLE_BLOCKS

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
        """All of them."""
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
        """The whole step."""
        return fsum(self)


class LayoutParts(NamedTuple):
    """What a micro-batch takes of a device, in seconds, and keeps."""

    block: BlockWork  #: what a block takes
    ends: BlockWork  #: what is before and behind the blocks
    messages: float  #: the allreduces of a block
    launched: float  #: what the host takes to launch a block
    hop: float  #: the way to the next stage

    @property
    def waiting(self) -> float:
        """How long a device waits for the host, for a block."""
        return max(0.0, self.launched - self.block.seconds - self.messages)

    @property
    def one(self) -> float:
        """What a block takes: the longer of device and host."""
        return self.block.seconds + self.messages + self.waiting


@dataclass
class Case:
    """A network, the examples of a step, and a cluster.

    Example:
        405 billion parameters as they were trained, on 16,384 H100s:

        >>> from dpkit.theory.planner.networks import NETWORKS
        >>> from dpkit.theory.hardware.clusters import cluster
        >>> many = cluster(16_384, "h100", "nvlink4", ranks_per_node=8,
        ...                network="infiniband400")
        >>> case = Case(NETWORKS["405B"], 2048, many)
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
    _parts: dict[tuple[object, ...], LayoutParts] = field(
        default_factory=dict, repr=False
    )
    _sums: dict[tuple[str, int, int, float], float] = field(
        default_factory=dict, repr=False
    )

    def parts(self, layout: Layout) -> LayoutParts:
        """Return what a micro-batch takes; the same for many layouts."""
        _, t, p, b, _, recompute, _, rows, _ = layout
        key = t, p == 1, b, recompute, rows
        if key not in self._parts:
            net, gpu = self.network, self.cluster.accelerator
            block, ends = (
                work(counts, gpu, net.dtype, self.kept_rate)
                for counts in (net.block(layout), net.ends(layout))
            )
            launched = 0.0
            if self.host is not None:
                launched = block.counts.launches.seconds(self.host)
            self._parts[key] = LayoutParts(
                block,
                ends,
                self._messages(layout, block),
                launched,
                self._hop(layout, block),
            )
        return self._parts[key]

    @property
    def kept_rate(self) -> float:
        """The part of the rate of products that the run keeps."""
        if self.sustained is not None:
            return self.sustained
        return SUSTAINED.get(self.cluster.accelerator.name, 1.0)

    def blocks_of(self, layout: Layout) -> int:
        """Return the blocks of the fullest device."""
        stages = layout.pipeline * layout.chunks
        return -(-self.network.num_blocks // stages) * layout.chunks

    def parameters_of(self, layout: Layout) -> float:
        """Return those of the device that has most: with the embedding."""
        block, ends, *_ = self.parts(layout)
        count = self.blocks_of(layout)
        # Where blocks are missing, they are missing at the ends.
        if count * layout.pipeline > self.network.num_blocks + 1:
            count -= 1
        return count * block.counts.parameters + ends.counts.parameters

    def micro_batches(self, layout: Layout) -> int:
        """Return how many follow each other, m."""
        return self.batch // (layout.data * layout.micro_batch)

    def memory(self, layout: Layout) -> StepMemory:
        """Return what the fullest device holds."""
        d, p, v = layout.data, layout.pipeline, layout.chunks
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
        flying = in_flight(name, p, self.micro_batches(layout), 0, v)
        kept = flying * self.blocks_of(layout) / v * block.counts.kept
        activations = kept + block.counts.again + ends.counts.kept
        return StepMemory(weights, gradients, state, activations)

    @property
    def room(self) -> float:
        """The bytes of a device that a layout may fill."""
        return self.share * self.cluster.accelerator.memory_bytes

    def seconds(self, layout: Layout) -> StepSeconds:
        """Return what a step takes."""
        p, v, m = layout.pipeline, layout.chunks, self.micro_batches(layout)
        parts = self.parts(layout)
        block, ends, messages, _, hop = parts
        number, most = self.network.num_blocks, self.blocks_of(layout)
        one = parts.one
        even = (number * one + ends.seconds) / p
        # The ends stand where blocks are missing, if any are.
        missing = min(1, most * p - number)
        slowest = max(most * one, (most - missing) * one + ends.seconds)
        bubble = (p - 1) / v * (even + 2 * v * hop) + m * (slowest - even)
        update = self._update(layout)
        return StepSeconds(
            m / p * (number * block.products + ends.products),
            m / p * (number * block.kernels + ends.kernels) + update,
            m / p * number * messages,
            m / p * number * parts.waiting,
            bubble,
            0.0 if layout.overlap else m * 2 * v * hop,
            self._gradients(layout, slowest),
        )

    def layouts(self) -> Iterator[Layout]:
        """Yield all layouts of the devices; tensor groups stay in a node."""
        count, net = self.cluster.num_devices, self.network
        node = self.cluster.ranks_per_node or count
        most = gcd(node, net.most_tensor)
        what = net.num_blocks, most, net.most_micro_batch, net.recompute
        yield from all_layouts(count, self.batch, *what)

    def _messages(self, layout: Layout, block: BlockWork) -> float:
        """Return what the allreduces of a block take for a micro-batch."""
        counts = block.counts
        halves = ("reduce_scatter", "allgather")
        names = halves if layout.sequence_parallel else ("allreduce",)
        return counts.num_sums * fsum(
            self._sum(name, layout.tensor, 1, counts.summed) for name in names
        )

    def _sum(self, name: str, ranks: int, stride: int, n: float) -> float:
        """Return what a collective takes; the same for many layouts."""
        key = name, ranks, stride, n
        if key not in self._sums:
            self._sums[key] = even_seconds(*key, self.cluster)
        return self._sums[key]

    def _hop(self, layout: Layout, block: BlockWork) -> float:
        """Return what a micro-batch takes to the next stage."""
        if layout.pipeline == 1:
            return 0.0
        node = self.cluster.ranks_per_node or self.cluster.num_devices
        inside = layout.num_devices <= node
        link = self.cluster.link if inside else self.cluster.network
        seconds = copy_seconds(link, block.counts.border)
        if layout.tensor > 1 and not layout.sequence_parallel:
            t, whole = layout.tensor, layout.tensor * block.counts.border
            seconds += self._sum("allgather", t, 1, whole)
        return seconds

    def _update(self, layout: Layout) -> float:
        accelerator = self.cluster.accelerator
        number = self.parameters_of(layout)
        rate = accelerator.bytes_per_second * accelerator.achieved_bytes
        shared = layout.data if layout.zero else 1
        return UPDATE_BYTES * number / shared / rate

    def _gradients(self, layout: Layout, one: float) -> float:
        """Return what is seen of the messages between replicas."""
        if layout.data == 1:
            return 0.0
        m, stage = self.micro_batches(layout), layout.zero
        number = self.parameters_of(layout)
        times = m if stage > 1 else 1  # that gradients are reduced
        gathers = (0, 1, 1, 2 * m)[stage]
        name = "reduce_scatter" if stage else "allreduce"
        group = layout.data, layout.tensor
        seconds = times * self._sum(name, *group, GRADIENT_BYTES * number)
        seconds += gathers * self._sum("allgather", *group, NUM_BYTES * number)
        if not layout.overlap:
            return seconds
        beside = one * (m if stage > 1 else 1 if stage else 2 / 3)
        return max(seconds / times / self.blocks_of(layout), seconds - beside)
