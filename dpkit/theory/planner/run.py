"""What each device of a layout holds, and what each second of a step is for.

The seconds are those of the fullest device. With m micro-batches, p devices
one behind another and v stages on each (1F1B; interleaved if v > 1)::

    products, kernels    m · what one micro-batch takes, shared equally by p
    messages             m · its allreduces, for which all of a group wait
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
from typing import NamedTuple

from dpkit.theory.collectives.library import even_seconds
from dpkit.theory.hardware.clusters import Cluster
from dpkit.theory.hardware.costs import copy_seconds
from dpkit.theory.pipelines.bubble import in_flight
from dpkit.theory.planner.layouts import Layout, all_layouts
from dpkit.theory.planner.work import NUM_BYTES, Network, Work, work
from dpkit.theory.sharding import SHARDED_FROM, WHOLE_BLOCKS

GRADIENT_BYTES = 4  # gradients are added up in float32
# Read gradients for their norm 4; Adam: four in, three out 28; weights to 16
# bits 6; zero the gradients 4.
UPDATE_BYTES = 42
ROOM = 0.9  # of the memory; assumed, see above


class Memory(NamedTuple):
    """The bytes of the fullest device, by what they are for."""

    weights: float
    gradients: float
    state: float
    activations: float

    @property
    def total(self) -> float:
        """All of them."""
        return sum(self)


class Seconds(NamedTuple):
    """The seconds of a step, by what they are for."""

    products: float
    kernels: float
    messages: float
    bubble: float
    hops: float
    gradients: float

    @property
    def total(self) -> float:
        """The whole step."""
        return sum(self)


@dataclass
class Run:
    """A network, the examples of a step, and a cluster.

    Example:
        405 billion parameters as they were trained, on 16,384 H100s:

        >>> from dpkit.theory.planner.networks import NETWORKS
        >>> from dpkit.theory.hardware.clusters import cluster
        >>> many = cluster(16_384, "h100", "nvlink4", ranks_per_node=8,
        ...                network="infiniband400")
        >>> run = Run(NETWORKS["405B"], 2048, many)
        >>> layout = Layout(128, 8, 16, chunks=8)
        >>> f"{run.memory(layout).total / 2**30:.0f} GiB"
        '62 GiB'
    """

    network: Network
    batch: int
    cluster: Cluster
    _work: dict[tuple[object, ...], tuple[Work, Work]] = field(
        default_factory=dict, repr=False
    )

    def work(self, layout: Layout) -> tuple[Work, Work]:
        """Return what a block takes, and what the ends take."""
        single = layout.pipeline == 1
        key = (*layout[1:2], single, layout.micro_batch, *layout[5::2])
        if key not in self._work:
            counts = self.network.block(layout), self.network.ends(layout)
            made = self.cluster.accelerator, self.network.dtype
            self._work[key] = work(counts[0], *made), work(counts[1], *made)
        return self._work[key]

    def blocks_of(self, layout: Layout) -> int:
        """Return the blocks of the fullest device."""
        stages = layout.pipeline * layout.chunks
        return -(-self.network.num_blocks // stages) * layout.chunks

    def parameters_of(self, layout: Layout) -> float:
        """Return those of the device that has most: with the embedding."""
        block, ends = self.work(layout)
        spare = self.blocks_of(layout) * layout.pipeline
        spare -= self.network.num_blocks
        # Where blocks are missing, they are missing at the ends.
        count = self.blocks_of(layout) - (1 if spare > 1 else 0)
        return count * block.counts.parameters + ends.counts.parameters

    def micro_batches(self, layout: Layout) -> int:
        """Return how many follow each other, m."""
        return self.batch // (layout.data * layout.micro_batch)

    def memory(self, layout: Layout) -> Memory:
        """Return what the fullest device holds."""
        d, p, v = layout.data, layout.pipeline, layout.chunks
        block, ends = self.work(layout)
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
        # Those of the blocks at work are whole.
        whole = block.counts.parameters
        if layout.zero == 3:
            weights += len(WHOLE_BLOCKS) * NUM_BYTES * whole
        elif layout.zero == 2:
            gradients += 2 * GRADIENT_BYTES * whole
        name = "interleaved" if v > 1 else "1f1b"
        flying = in_flight(name, p, self.micro_batches(layout), 0, v)
        kept = flying * self.blocks_of(layout) / v * block.counts.kept
        activations = kept + block.counts.again + ends.counts.kept
        return Memory(weights, gradients, state, activations)

    def fits(self, layout: Layout) -> bool:
        """Return whether it leaves a tenth of the memory free."""
        room = ROOM * self.cluster.accelerator.memory_bytes
        return self.memory(layout).total <= room

    def seconds(self, layout: Layout) -> Seconds:
        """Return what a step takes."""
        p, v, m = layout.pipeline, layout.chunks, self.micro_batches(layout)
        block, ends = self.work(layout)
        number, most = self.network.num_blocks, self.blocks_of(layout)
        messages = self._messages(layout, block)
        one = block.seconds + messages
        even = (number * one + ends.seconds) / p
        # The ends stand where blocks are missing, if any are.
        missing = min(1, most * p - number)
        slowest = max(most * one, (most - missing) * one + ends.seconds)
        hop = self._hop(layout, block)
        bubble = (p - 1) / v * (even + 2 * v * hop) + m * (slowest - even)
        update = self._update(layout)
        return Seconds(
            m / p * (number * block.products + ends.products),
            m / p * (number * block.kernels + ends.kernels) + update,
            m / p * number * messages,
            bubble,
            0.0 if layout.overlap else m * 2 * v * hop,
            self._gradients(layout, slowest / most, slowest),
        )

    def layouts(self) -> Iterator[Layout]:
        """Yield all layouts of the devices; tensor groups stay in a node."""
        count = self.cluster.num_devices
        node = self.cluster.ranks_per_node or count
        most = min(node, self.network.most_tensor)
        what = self.network.num_blocks, most, self.network.recompute
        yield from all_layouts(count, self.batch, *what)

    def _messages(self, layout: Layout, block: Work) -> float:
        """Return what the allreduces of a block take for a micro-batch."""
        _, _, _, _, _, _, _, summed, count, _, _ = block.counts
        if not count:
            return 0.0
        halves = ("reduce_scatter", "allgather")
        names = halves if layout.sequence_parallel else ("allreduce",)
        return count * sum(
            even_seconds(name, layout.tensor, 1, summed, self.cluster)
            for name in names
        )

    def _hop(self, layout: Layout, block: Work) -> float:
        """Return what a micro-batch takes to the next stage."""
        if layout.pipeline == 1:
            return 0.0
        node = self.cluster.ranks_per_node or self.cluster.num_devices
        inside = layout.num_devices <= node
        link = self.cluster.link if inside else self.cluster.network
        seconds = copy_seconds(link, block.counts.border)
        if layout.tensor > 1 and not layout.sequence_parallel:
            t, whole = layout.tensor, layout.tensor * block.counts.border
            seconds += even_seconds("allgather", t, 1, whole, self.cluster)
        return seconds

    def _update(self, layout: Layout) -> float:
        accelerator = self.cluster.accelerator
        number = self.parameters_of(layout)
        rate = accelerator.bytes_per_second * accelerator.achieved_bytes
        shared = layout.data if layout.zero else 1
        return UPDATE_BYTES * number / shared / rate

    def _gradients(self, layout: Layout, block: float, one: float) -> float:
        """Return what is seen of the messages between replicas."""
        if layout.data == 1:
            return 0.0
        m, stage = self.micro_batches(layout), layout.zero
        number = self.parameters_of(layout)
        times = m if stage > 1 else 1  # that gradients are reduced
        gathers = {0: 0, 1: 1, 2: 1, 3: 2 * m}[stage]
        reducing = "reduce_scatter" if stage else "allreduce"
        group = layout.data, layout.tensor
        seconds = times * even_seconds(
            reducing, *group, GRADIENT_BYTES * number, self.cluster
        )
        if gathers:
            seconds += gathers * even_seconds(
                "allgather", *group, NUM_BYTES * number, self.cluster
            )
        if not layout.overlap:
            return seconds
        beside = one * (m if stage > 1 else 1 if stage else 2 / 3)
        least = seconds / times / self.blocks_of(layout)
        return max(least, seconds - beside)
