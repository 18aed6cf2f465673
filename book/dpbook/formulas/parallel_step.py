"""A step of data parallelism in time: who launches, computes, sends, waits.

One Python for two devices, which adds up gradients after backward; ``f``,
``b`` and ``u`` are forward, backward and update::

    Python      f0 f1 |b| sums | u0 u1          launches
    device 0       f0   b       | sends | u0
    device 1          f1   b    | sends |    u1
                        both backwards launch at the same time

With one host for each device all rows look like the first. With buckets it
sends while backward goes on (``overlap``).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum

from dpbook.formulas.gradient_sums import SUMS, bucket_seconds, gradient_sum
from dpbook.formulas.networks import (
    IMAGE_BYTES,
    LABEL_BYTES,
    Counted,
    CountedNetwork,
    Phase,
    phase,
)
from dpbook.formulas.overlap import bucket_ends
from dpkit.sim.hardware import Cluster, copy_seconds
from dpkit.units import check_known

BUCKET_SIZES = 2**20, 25 * 2**20  # of the first bucket, of the others


@dataclass(frozen=True)
class Stretch:
    """What a host or a device is at for a while, and how much of it."""

    device: str  # "host", "device 0"
    stream: str
    what: str
    start: float  # seconds since the step began
    end: float
    busy: float  # seconds of it
    count: int = 1  # operations, or messages


@dataclass(frozen=True)
class ParallelStep:
    """A step on all devices of a cluster."""

    #: Of the host, and of each device, in the order of time.
    stretches: Sequence[Stretch]
    seconds: float  #: from its start until the host has waited for all

    @property
    def gradients(self) -> float:
        """The seconds in which gradients are on their way."""
        copies = self._of("device 0", "copies")
        return fsum(s.busy for s in copies if s.what == "gradients")

    @property
    def hidden(self) -> float:
        """The seconds in which device 0 sends gradients during backward."""
        backward = max(
            s.end
            for s in self._of("device 0", "computes")
            if s.what == "backward"
        )
        # A copy begins when backward has given a gradient, never before.
        return fsum(
            min(s.busy, max(0.0, backward - s.start))
            for s in self._of("device 0", "copies")
            if s.what == "gradients"
        )

    @property
    def launches(self) -> int:
        """How many operations and copies one host launches."""
        return sum(s.count for s in self._of("host", "launches"))

    def busy(self, device: str, stream: str) -> float:
        """Return the seconds that a row of the timeline is busy.

        ``device`` and ``stream`` name the row: "host" and "launches".
        """
        return fsum(s.busy for s in self._of(device, stream))

    def _of(self, device: str, stream: str) -> list[Stretch]:
        where = device, stream
        return [s for s in self.stretches if (s.device, s.stream) == where]


def parallel_step(
    network: CountedNetwork,
    images: int,
    cluster: Cluster,
    *,
    algorithm: str = "star",
    in_buckets: bool = False,
) -> ParallelStep:
    """Return a step of data parallelism, on all devices of a cluster.

    Images come from pinned memory. It is within 10 % of simulated steps
    (``tests/book/test_parallel_step.py``).

    Args:
        network: What a step of it launches and computes.
        images: Those of the batch, over all devices.
        cluster: The devices, their hosts and links.
        algorithm: How gradients are added up, a name in ``SUMS``.
        in_buckets: Whether gradients are added up in buckets while backward
            goes on. If not, they are added up one by one when it is done.

    Raises:
        ValueError: there is no such algorithm, the images are fewer than the
            devices, or one host is to drive devices with buckets.

    Example:
        >>> from dpkit.sim.hardware.clusters import cluster
        >>> from dpbook.formulas.networks import network
        >>> lenet = network("LeNet")
        >>> for k in (1, 2):
        ...     cards = cluster(k, "v100-pcie", "pcie3")
        ...     step = parallel_step(lenet, 256, cards)
        ...     print(step.launches, f"{1e3 * step.seconds:.2f} ms")
        59 0.70 ms
        142 1.10 ms
    """
    _check(images, cluster, algorithm, in_buckets)
    k = cluster.num_devices
    run = _Run(network, -(-images // k), cluster)
    run.receive_images()
    run.compute("forward", network.forward)
    if in_buckets and k > 1:
        run.reduce_in_buckets(algorithm)
    else:
        run.compute_backward()
        if k > 1:
            run.reduce(algorithm)
    run.compute("update", network.update)
    return run.result()


def _check(
    images: int, cluster: Cluster, algorithm: str, in_buckets: bool
) -> None:
    check_known("algorithm", algorithm, SUMS)
    k = cluster.num_devices
    if images < k:
        raise ValueError(
            f"some devices have nothing to do (images: {images}, devices: {k})"
        )
    if in_buckets and cluster.hosts == "one":
        raise ValueError(
            'buckets need one host for each device (hosts: "one")'
        )


class _Run:
    """Where hosts and devices have come to in a step.

    ``driven`` is how many devices a host drives, ``issued`` when it has
    launched all so far, and ``done`` when each device is done with it.
    """

    def __init__(
        self, network: CountedNetwork, share: int, cluster: Cluster
    ) -> None:
        self.network = network
        self.share = share
        self.cluster = cluster
        self.k = cluster.num_devices
        self.driven = self.k if cluster.hosts == "one" else 1
        self.issued = 0.0
        self.done = [0.0] * self.k
        self.stretches: list[Stretch] = []

    def receive_images(self) -> None:
        """Copy the shards to the devices, one after another on one path."""
        host = self.cluster.host
        link = self.cluster.host_link
        images = copy_seconds(link, self.share * IMAGE_BYTES)
        labels = copy_seconds(link, self.share * LABEL_BYTES)
        first = host.view_seconds + host.launch_seconds
        for r in range(self.k):
            start = first + r * images
            self._note(
                r, "copies", what="images", when=(start, start + images)
            )
            # The labels of all follow the images of all.
            self.done[r] = first + self.k * images + (r + 1) * labels
        self._launch("images", 2 * self.driven * first, 2 * self.driven)

    def compute(self, what: str, operations: Sequence[Counted]) -> None:
        """Launch a part for one device after another, and compute it."""
        part = phase(operations, self.share, self.cluster)
        step = part.launching if self.driven > 1 else 0.0
        for r in range(self.k):
            self._compute(r, what, part, self.issued + r * step)
        count = self.driven * part.launches
        self._launch(what, self.driven * part.launching, count)

    def compute_backward(self) -> None:
        """Launch backward for all devices at once, and compute it."""
        operations = self.network.backward
        part = phase(operations, self.share, self.cluster, in_backward=True)
        for r in range(self.k):
            self._compute(r, "backward", part, self.issued)
        self._launch("backward", part.launching, self.driven * part.launches)

    def reduce(self, algorithm: str) -> None:
        """Add up one gradient after another."""
        host = self.cluster.host
        begun = max(self.done)
        launching = sending = alone = 0.0
        launches = 0
        for num_bytes, _ in self.network.gradients:
            each = gradient_sum(algorithm, num_bytes, self.cluster)
            taken = host.issuing(
                launches=each.launches, views=each.views, in_backward=False
            )
            # The first message is launched first, the last one last.
            alone = max(launching + host.launch_seconds, alone) + each.seconds
            launching += taken
            launches += each.launches
            alone = max(alone, launching + each.last)
            sending += each.seconds
        part = Phase(
            launching=launching,
            computing=sending,
            alone=alone,
            launches=launches,
        )
        end = part.end(self.issued, begun)
        when = max(begun, self.issued), end
        count = len(self.network.gradients)
        for r in range(self.k):
            self._note(
                r,
                "copies",
                what="gradients",
                when=when,
                busy=sending,
                count=count,
            )
            self.done[r] = end
        self._launch("gradients", launching, launches)

    def reduce_in_buckets(self, algorithm: str) -> None:
        """Add up buckets of gradients while backward goes on."""
        issued = self.issued
        free = max(self.done)
        buckets = buckets_of(self.network.gradients)
        ready = []
        costs = []
        launches = 0
        for num_bytes, at in buckets:
            before = self.network.backward[:at]
            part = phase(before, self.share, self.cluster, in_backward=True)
            ready.append(part.end(issued, free))
            costs.append(bucket_seconds(algorithm, num_bytes, self.cluster))
            each = gradient_sum(algorithm, num_bytes, self.cluster)
            launches += each.launches
        self.compute_backward()
        # Threads of backward launch it meanwhile: its time is in the costs.
        self._launch("gradients", 0.0, launches)
        ends = bucket_ends(ready, costs)
        for end, cost in zip(ends, costs):
            for r in range(self.k):
                self._note(
                    r, "copies", what="gradients", when=(end - cost, end)
                )
        self.done = [max(done, ends[-1]) for done in self.done]

    def result(self) -> ParallelStep:
        """Return the step; the host has waited for its devices."""
        wait = self.driven * self.cluster.host.wait_seconds
        end = max(self.issued, *self.done) + wait
        return ParallelStep(self.stretches, end)

    def _compute(self, r: int, what: str, part: Phase, issued: float) -> None:
        """Make a device compute what is launched from ``issued`` on."""
        start = max(issued, self.done[r])
        self.done[r] = part.end(issued, self.done[r])
        when = start, self.done[r]
        self._note(
            r,
            "computes",
            what=what,
            when=when,
            busy=part.computing,
            count=part.launches,
        )

    def _launch(self, what: str, seconds: float, count: int) -> None:
        """Make the host launch something; of many, the one of device 0."""
        when = self.issued, self.issued + seconds
        self._note(
            -1, "launches", what=what, when=when, busy=seconds, count=count
        )
        self.issued += seconds

    def _note(
        self,
        r: int,
        stream: str,
        *,
        what: str,
        when: tuple[float, float],
        busy: float | None = None,
        count: int = 1,
    ) -> None:
        device = "host" if r < 0 else f"device {r}"
        seconds = when[1] - when[0] if busy is None else busy
        start, end = when
        self.stretches.append(
            Stretch(
                device,
                stream,
                what,
                start=start,
                end=end,
                busy=seconds,
                count=count,
            )
        )


def buckets_of(gradients: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the bytes of each bucket, and when it is full, as gradients do.

    The first takes gradients until it has 1 MiB, each other until it has 25.
    """
    # Gradients of 1, 1, 20, 10 and 2 MiB: buckets of 1, 1 + 20 + 10 and 2.
    found: list[tuple[int, int]] = []
    room = 0
    for num_bytes, at in gradients:
        if room <= 0:
            room = BUCKET_SIZES[min(1, len(found))]
            found.append((0, 0))
        found[-1] = found[-1][0] + num_bytes, at
        room -= num_bytes
    return found
