"""The time that a plan takes: its messages, replayed on a clock.

Each rank has three streams: what it sends, what it receives, and what it
adds. A message starts when both of its ranks are done with the steps before,
so one buffer for what arrives is enough: it is added before more comes. Rank
1 of a ring of three, in the first two steps::

    sending       |= to 2 =|     |= to 2 =|
    receiving     |from 0 =|     |from 0 =|
    adding                 |add|          |add|

Ports and shared paths carry one message at a time in each direction. Where
two need the same one, one of them waits. Where none has to wait, the time is
that of the closed form.
"""

from dataclasses import replace

from dpkit.plans.plan import Message, Plan, num_elements
from dpkit.sim.clock import DEFAULT, Clock, Span
from dpkit.sim.hardware import Cluster, copy_seconds, operation_seconds
from dpkit.sim.timeline import Timeline

SENDING = DEFAULT + 1
RECEIVING = DEFAULT + 2
STREAMS = {
    "compute": "adding",
    f"stream {SENDING}": "sending",
    f"stream {RECEIVING}": "receiving",
}


def replay_plan(
    plan: Plan, length: int, cluster: Cluster, element_bytes: int = 4
) -> Timeline:
    """Give every message and every addition of a plan its time.

    Args:
        plan: The messages.
        length: The elements in the buffer of each rank.
        cluster: Known hardware, whose host launches every message and
            addition, or an ``ideal_cluster``, which has the rates of the
            closed forms.
        element_bytes: The size of an element.

    Returns:
        A timeline with a row for each rank's messages and additions.

    Raises:
        ValueError: there are fewer devices than ranks.

    Example:
        >>> from dpkit.plans.rings import ring
        >>> from dpkit.plans.alpha_beta import ideal_cluster
        >>> from dpkit.plans.costs import Rates
        >>> four = ideal_cluster(4, Rates(alpha=1, beta=0.5, gamma=0.25))
        >>> replay_plan(ring(4), 40, four).makespan
        156.0
    """
    if cluster.num_devices < plan.world_size:
        raise ValueError(
            f"too few devices for the ranks (devices: {cluster.num_devices}, "
            f"ranks: {plan.world_size}); each rank needs one"
        )
    clock = Clock(cluster)
    spans = clock.record()
    for step in plan.steps:
        sizes = ((m, num_elements(plan, m, length)) for m in step)
        _replay_step(clock, [(m, n) for m, n in sizes if n], element_bytes)
    clock.stop_recording()
    lasting = [_renamed(span) for span in spans if span.end > span.start]
    return Timeline(lasting, label=f"replayed ({cluster.name})")


def _replay_step(
    clock: Clock, sent: list[tuple[Message, int]], element_bytes: int
) -> None:
    """Give the messages of a step, with their elements, their time."""
    # A message waits for what both of its ranks have done so far. This is
    # noted for all messages first: none waits for another of its step.
    for message, _ in sent:
        _wait(clock, rank=message.source, stream=SENDING, other=DEFAULT)
        _wait(clock, rank=message.target, stream=RECEIVING, other=DEFAULT)
    for message, size in sent:
        _send(clock, message, size * element_bytes)
    # What both of its ranks do next waits for the message.
    for message, _ in sent:
        _wait(clock, rank=message.source, stream=DEFAULT, other=SENDING)
        _wait(clock, rank=message.target, stream=DEFAULT, other=RECEIVING)
    for message, size in sent:
        if message.adds:
            _add(clock, message.target, size, element_bytes)


def _wait(clock: Clock, *, rank: int, stream: int, other: int) -> None:
    """Make a stream of a rank wait for what another of its streams has."""
    clock.mark_stream(rank, stream, clock.mark_stream(rank, other))


def _send(clock: Clock, message: Message, num_bytes: int) -> None:
    """Copy from the stream on which one sends to where the other receives."""
    source = message.source
    target = message.target
    link = clock.cluster.link_between(source, target)
    clock.current[source] = SENDING
    clock.current[target] = RECEIVING
    clock.copy(
        source,
        target,
        seconds=copy_seconds(link, num_bytes),
        num_bytes=num_bytes,
    )
    clock.current[source] = DEFAULT
    clock.current[target] = DEFAULT


def _add(clock: Clock, rank: int, size: int, element_bytes: int) -> None:
    """Add what has arrived: read both terms, write the sum."""
    moved = 3 * size * element_bytes
    accelerator = clock.cluster.accelerator
    taken = operation_seconds(accelerator, flops=size, num_bytes=moved)
    clock.compute(rank, "add", seconds=taken, num_bytes=moved, flops=size)


def _renamed(span: Span) -> Span:
    """Call a span what it is in a plan, of ranks."""
    return replace(
        span,
        device=span.device.replace("sim:", "rank "),
        stream=STREAMS.get(span.stream, span.stream),
        name=span.name.replace("sim:", "rank "),
    )
