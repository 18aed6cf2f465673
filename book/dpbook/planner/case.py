"""What each device of a layout holds, and what each second of a step is for.

The seconds are those of the fullest device. With m micro-batches, p devices
one behind another and v stages on each (1F1B; interleaved if v > 1)::

    products, kernels    m · what one micro-batch takes, shared equally by p
    messages             m · its allreduces, keys and values, and rows of
                         experts, for which all of a group wait
    launches             m · what blocks wait for their host besides, which is
                         nothing where it launches them in less time
    bubble               (p - 1)/v · a micro-batch and its hops, and what the
                         fullest device has more than its equal share
    hops                 m · 2v · the time to the next stage; none of it where
                         layouts overlap
    gradients            what of the messages of ZeRO is not hidden by the
                         arithmetic, and at least those of one block
    update               42 bytes of memory for each parameter, by Adam

ZeRO sends for each parameter, over the ring of the devices that have it.
These are d · c, those of all replicas; an expert may have fewer or more::

    stage 0   4 bytes to all and back (an allreduce)
    stage 1   4 bytes reduced and scattered, 2 gathered, once a step
    stage 2   4 reduced and scattered for each micro-batch, 2 gathered
    stage 3   4 reduced and scattered, 2 gathered twice, for each micro-batch

What is sent for each micro-batch goes block by block, each time round the
whole ring (``zero_messages``).

Messages are hidden by the arithmetic of the last micro-batch (backward) and
the first (forward), together as long as one, for stage 0 of backward alone;
for stages 2 and 3 by all.

Devices that share sequences gather all keys and values of a layer before they
compute attention, and scatter the gradients of them, as Llama 3's program did.
Nothing hides these messages, which have 16 bits a number. A ring would hide
them where sequences are long, but no step with one was published for such
models; with few heads of keys they are short. c devices have b · s/c tokens
each, with 2g numbers in keys and values, and t devices share the heads::

    bytes of a gather     2 · 2g/t · b · s, of which a device has a c-th
    gathers of a layer    forward; forward again where that is; backward,
                          unless a device keeps what it has gathered
    405B, s = 131,072, t = 8, c = 16    67 MB, each time

Where backward gathers the inputs of a layer's products again, a product that
runs meanwhile takes the time of the gather, or hides a part of it
(``work._hiding_products``).

Not modelled: what messages take from the arithmetic that they overlap with,
the heat of a GPU, waiting for data, faults; in memory: what an allocator and
libraries need. So a tenth of the memory is left free.

Source:
    dpkit.schedules.bubble, dpkit.plans.library_costs and
    dpbook.formulas.sharding.
"""

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, field, replace
from math import fsum, gcd
from typing import NamedTuple

from dpbook.formulas.sharding import SHARDED_FROM, WHOLE_BLOCKS
from dpbook.planner import experts, plain
from dpbook.planner.layouts import Layout, all_layouts
from dpbook.planner.networks import Convolutional, Network
from dpbook.planner.peak import Held, peak
from dpbook.planner.work import (
    NUM_BYTES,
    SUSTAINED,
    BlockWork,
    Counts,
    product_seconds,
    work,
)
from dpbook.planner.zero_messages import BY_BLOCK, ZeroMessages
from dpkit.plans import even_seconds
from dpkit.schedules import in_flight
from dpkit.sim.hardware import HOSTS, Cluster, Host, copy_seconds

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
    messages: float  #: those of a block, inside the stage
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


class SharedParameters(NamedTuple):
    """Parameters of a device that others have too, for other tokens."""

    number: float
    copies: int  #: devices that have them
    stride: int  #: the distance from one of these devices to the next


@dataclass
class Case:
    """A network, the examples of a step, and a cluster.

    Example:
        405 billion parameters as they were trained, on 16,384 H100s:

        >>> from dpbook.planner.networks import NETWORKS
        >>> from dpkit.sim.hardware.clusters import cluster
        >>> many = cluster(16_384, "h100", "nvlink4", ranks_per_node=8,
        ...                network="infiniband400")
        >>> case = Case(NETWORKS["405B"], 2048, many, attention="flash")
        >>> layout = Layout(128, 8, 16, chunks=8, zero=2)
        >>> f"{case.memory(layout).total / 2**30:.1f} GiB"
        '72.8 GiB'
        >>> f"{case.seconds(layout).total:.1f} s"
        '7.0 s'
    """

    network: Network  #: what is trained
    batch: int  #: the examples of a step, over all devices
    cluster: Cluster  #: on what
    _: KW_ONLY
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
    #: The kernels between products, "plain" or "fused". "" stands for those
    #: that a program of the layout has (``takes_plain``).
    kernels: str = ""
    #: The messages by which replicas share what ZeRO-2 or 3 divides.
    zero_messages: ZeroMessages = BY_BLOCK
    _networks: dict[bool, Network] = field(
        default_factory=dict, init=False, repr=False
    )
    _parts: dict[tuple[object, ...], LayoutParts] = field(
        default_factory=dict, init=False, repr=False
    )
    _sums: dict[tuple[str, int, int, float], float] = field(
        default_factory=dict, init=False, repr=False
    )

    def parts(self, layout: Layout) -> LayoutParts:
        """Return the parts of a layout's step, for one micro-batch.

        Many layouts have the same, so that they are computed once.
        """
        experts.check_groups(self.network.experts, layout)
        net = self.network_of(layout)
        key = (
            net.plain,
            layout.tensor,
            layout.pipeline == 1,
            layout.micro_batch,
            layout.recompute,
            layout.sequence_parallel,
            layout.context,
            layout.gathered,
            layout.expert,
            layout.expert_tensor,
        )
        if key not in self._parts:
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

    # Kernels between products, by d × t × p and the stage of ZeRO:
    #
    #     64 × 1 × 1   all     plain    DDP and FSDP of PyTorch, eager
    #     8 × 8 × 1    2, 3    plain    FSDP with tensor groups by DTensor
    #     8 × 8 × 1    0, 1    fused    as by Megatron-LM
    #     4 × 4 × 4    all     fused    the same, with a pipeline
    #     all          all     fused    compiled: no host is waited for

    def takes_plain(self, layout: Layout) -> bool:
        """Return whether a program of a layout has plain kernels.

        They are counted for a Llama alone, and where backward computes nothing
        or whole blocks again; all others are taken as fused.
        """
        if self.kernels or self.network.plain:
            return self.kernels == "plain" or self.network.plain
        if self.host is None or layout.pipeline > 1:
            return False
        by_engines = layout.zero >= 2 or layout.tensor == 1
        return by_engines and plain.is_counted(self.network, layout)

    def network_of(self, layout: Layout) -> Network:
        """Return the network, with the kernels of a layout's program."""
        is_plain = self.takes_plain(layout)
        if is_plain not in self._networks:
            net = self.network
            if is_plain != net.plain and not isinstance(net, Convolutional):
                net = replace(net, plain=is_plain)
            self._networks[is_plain] = net
        return self._networks[is_plain]

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
        return fsum(each.number for each in self.shared_parameters(layout))

    def shared_parameters(
        self, layout: Layout, rank: int = 0
    ) -> list[SharedParameters]:
        """Return the parameters of a device: of experts, and all others.

        Args:
            layout: How the step is cut.
            rank: The device of its pipeline, the first or the second.
        """
        block, ends, *_ = self.parts(layout)
        count = self.blocks_of(layout)
        if rank == 0:
            count -= self._missing_first(layout)
        of_experts = block.counts.expert_parameters
        number = count * (block.counts.parameters - of_experts)
        if rank == 0:
            number += ends.counts.parameters
        found = [SharedParameters(number, layout.num_copies, layout.tensor)]
        if of_experts:
            stride = layout.expert * layout.expert_tensor
            others = count * of_experts, layout.expert_copies, stride
            found.append(SharedParameters(*others))
        return found

    def _missing_first(self, layout: Layout) -> int:
        """Return how many blocks fewer the first device has than the second.

        Where one block is missing, the last device has one fewer, which scores
        the words; where two are, the first too, which has the embedding.
        """
        most = self.blocks_of(layout) * layout.pipeline
        return 1 if most > self.network.num_blocks + 1 else 0

    def micro_batches(self, layout: Layout) -> int:
        """Return how many micro-batches a replica computes in a step: m."""
        return self.batch // (layout.data * layout.micro_batch)

    def memory(self, layout: Layout) -> StepMemory:
        """Return the bytes of the device that holds most, by purpose.

        It is the first of a pipeline, or the second where the first has a
        block fewer.
        """
        return self._memory_of(layout, self.fullest(layout))

    def fullest(self, layout: Layout) -> int:
        """Return the rank in its pipeline of the device that holds most."""
        if not self._missing_first(layout):
            return 0
        first, second = (
            self._memory_of(layout, rank).total for rank in (0, 1)
        )
        return 0 if first >= second else 1

    def _memory_of(self, layout: Layout, rank: int) -> StepMemory:
        """Return the bytes of the first or second device of a pipeline."""
        block, ends, *_ = self.parts(layout)
        shared = self.shared_parameters(layout, rank)
        if self.takes_plain(layout):
            number = fsum(each.number for each in shared)
            return StepMemory(*peak(self._held(layout, rank, number)))
        sizes = {
            "parameters": NUM_BYTES,
            "gradients": GRADIENT_BYTES,
            "state": self.network.state_bytes,
        }
        weights, gradients, state = (
            fsum(
                size * n / (d if layout.zero >= SHARDED_FROM[name] else 1)
                for n, d, _ in shared
            )
            for name, size in sizes.items()
        )
        # Blocks at work are whole, as far as they are divided.
        of_experts = block.counts.expert_parameters
        whole = 0.0
        if layout.num_copies > 1:
            whole += block.counts.parameters - of_experts
        if layout.expert_copies > 1:
            whole += of_experts
        if layout.zero == 3:
            weights += len(WHOLE_BLOCKS) * NUM_BYTES * whole
        elif layout.zero == 2:
            gradients += 2 * GRADIENT_BYTES * whole
        kept = self.blocks_in_flight(layout, rank) * block.counts.kept
        activations = kept + block.counts.again + ends.counts.kept
        return StepMemory(
            weights=weights,
            gradients=gradients,
            state=state,
            activations=activations,
        )

    def _held(self, layout: Layout, rank: int, number: float) -> Held:
        """Return what a device of PyTorch's engines has.

        Args:
            layout: How the step is cut.
            rank: The device of the pipeline.
            number: Its parameters.
        """
        block, ends, *_ = self.parts(layout)
        return Held(
            parameters=number,
            block=block.counts.parameters,
            ends=ends.counts.parameters,
            blocks=self.blocks_of(layout),
            flying=self.blocks_in_flight(layout, rank),
            kept=block.counts.kept,
            again=block.counts.again,
            ends_kept=ends.counts.kept,
            copies=layout.num_copies,
            zero=layout.zero,
            several=self.micro_batches(layout) > 1,
        )

    def blocks_in_flight(self, layout: Layout, rank: int = 0) -> float:
        """Return of how many blocks a device keeps activations at once.

        A block counts as often as it has micro-batches in flight. 126 blocks,
        p = 16, v = 8, m = 32: a stage is a block, but the first has the
        embedding alone, so that ranks 0 and 1 hold::

            rank    stages in flight    of them the first    blocks
             0            143                  31              112
             1            141                   0              141

        Args:
            layout: How the step is cut.
            rank: The device of the pipeline.
        """
        p = layout.pipeline
        v = layout.chunks
        m = self.micro_batches(layout)
        flying = in_flight(
            "interleaved" if v > 1 else "1f1b",
            num_devices=p,
            num_micro_batches=m,
            rank=rank,
            chunks=v,
        )
        blocks = flying * self.blocks_of(layout) / v
        if rank == 0 and self._missing_first(layout):
            blocks -= min(m, p) + max(0, flying - v * p)
        return blocks

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

        A tensor group never spans two nodes. With plain modules it keeps what
        it has gathered, and backward computes nothing or all again.
        """
        count = self.cluster.num_devices
        net = self.network
        node = self.cluster.ranks_per_node or count
        most = gcd(node, net.most_tensor)
        found = all_layouts(
            num_devices=count,
            batch=self.batch,
            blocks=net.num_blocks,
            most_tensor=most,
            most_micro_batch=net.most_micro_batch,
            recompute=net.recompute,
            most_context=net.most_context,
            experts=net.experts,
        )
        for each in found:
            if not self._would_be_plain(each):
                yield each
            elif each.recompute != "selective":
                yield each._replace(gathered="kept")

    def _would_be_plain(self, layout: Layout) -> bool:
        """Return whether it takes plain kernels, if these were counted."""
        return self.takes_plain(layout._replace(recompute="none"))

    def _messages(self, layout: Layout, block: BlockWork) -> float:
        """Return the seconds of the collectives of a block, by micro-batch."""
        counts = block.counts
        t = layout.tensor
        halves = ("reduce_scatter", "allgather")
        names = halves if layout.sequence_parallel else ("allreduce",)
        sums = counts.num_sums * fsum(
            self._sum(name, ranks=t, stride=1, n=counts.summed)
            for name in names
        )
        again = fsum(
            max(
                0.0,
                self._sum("allgather", ranks=t, stride=1, n=counts.summed)
                - hidden,
            )
            for hidden in self._hiding(counts)
        )
        rows = experts.exchange_seconds(layout, counts.sent_rows, self.cluster)
        return sums + again + rows + self._sequence_messages(layout, counts)

    def _sequence_messages(self, layout: Layout, counts: Counts) -> float:
        """Return the seconds in which devices share keys and values."""
        gather, scatter = (
            self._sum(
                name,
                ranks=layout.context,
                stride=layout.tensor,
                n=counts.keys_and_values,
            )
            for name in ("allgather", "reduce_scatter")
        )
        return counts.num_gathers * gather + scatter

    def _hiding(self, counts: Counts) -> Iterator[float]:
        """Yield the seconds of each product that hides a gather of inputs."""
        for flops in counts.hiding_flops:
            yield product_seconds(
                flops,
                count=1,
                accelerator=self.cluster.accelerator,
                dtype=self.network.dtype,
                sustained=self.kept_rate,
            )

    def _sum(self, name: str, *, ranks: int, stride: int, n: float) -> float:
        """Return the seconds of a collective on evenly spaced devices.

        Many layouts ask for the same, so that it is computed once.
        """
        key = name, ranks, stride, n
        if key not in self._sums:
            self._sums[key] = even_seconds(
                name, p=ranks, stride=stride, n=n, cluster=self.cluster
            )
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
            seconds += self._sum("allgather", ranks=t, stride=1, n=whole)
        return seconds

    def _update(self, layout: Layout) -> float:
        accelerator = self.cluster.accelerator
        rate = accelerator.bytes_per_second * accelerator.achieved_bytes
        moved = 0.0
        for number, copies, _ in self.shared_parameters(layout):
            own = number / (copies if layout.zero else 1)
            if self.takes_plain(layout):
                moved += plain.UPDATE_BYTES * own
                moved += plain.copied_bytes(layout) * number
            else:
                moved += UPDATE_BYTES * own
        return moved / rate

    def _gradients(self, layout: Layout, one: float) -> float:
        """Return the seconds of messages of replicas that nothing hides."""
        m = self.micro_batches(layout)
        stage = layout.zero
        times = m if stage > 1 else 1  # that gradients are reduced
        seconds = 0.0
        for shared in self.shared_parameters(layout):
            if shared.copies > 1:
                seconds += times * self._reducing(layout, shared)
                gathers = (0, 1, 1, m)[stage]
                seconds += gathers * self._gathering(layout, shared)
        if not layout.overlap:
            return seconds
        hidden = one * (m if stage > 1 else 1 if stage else 2 / 3)
        return max(seconds / times / self.blocks_of(layout), seconds - hidden)

    def _reducing(self, layout: Layout, shared: SharedParameters) -> float:
        """Return the seconds in which their gradients are reduced once."""
        number, copies, stride = shared
        if layout.zero > 1:
            of_block = self.zero_messages
            count = of_block.reductions * self.blocks_of(layout)
            num_bytes = of_block.gradient_bytes * number
            return self._each(count, "reduce_scatter", shared, num_bytes)
        name = "reduce_scatter" if layout.zero else "allreduce"
        return self._sum(
            name, ranks=copies, stride=stride, n=GRADIENT_BYTES * number
        )

    def _gathering(self, layout: Layout, shared: SharedParameters) -> float:
        """Return the seconds of gathering weights: once a step or m times."""
        number, copies, stride = shared
        num_bytes = NUM_BYTES * number
        if layout.zero == 3:
            of_block = self.zero_messages
            count = of_block.gathers * self.blocks_of(layout)
            num_bytes *= of_block.gathered
            return self._each(count, "allgather", shared, num_bytes)
        return self._sum("allgather", ranks=copies, stride=stride, n=num_bytes)

    def _each(
        self, count: int, name: str, shared: SharedParameters, num_bytes: float
    ) -> float:
        """Return the seconds of equal messages, one after another.

        Each goes round the whole ring of those that have the same.
        """
        _, copies, stride = shared
        ring = self._sum(
            name, ranks=copies, stride=stride, n=num_bytes / count
        )
        return count * (ring + self.zero_messages.host_seconds(copies))
