"""Plans: a collective operation as a list of steps of messages.

Each rank holds a buffer, cut into chunks. A message carries chunks of the
buffer of one rank to another, which adds them to its own or puts them in
their place. In one step each rank sends one message at most and receives one
at most. A ring of three ranks, each column a rank with its three chunks::

            rank 0       rank 1       rank 2
            a0 b0 c0     a1 b1 c1     a2 b2 c2
    step 0  ·  ·  c0 ──▶ a1 ·  · ───▶ ·  b2 ·  ──▶ (rank 0)    added
    step 1  ·  b02·  ──▶ ·  ·  c10 ─▶ a21·  ·  ──▶ (rank 0)    added
    step 2  a· ·  ·  …                                         put in place

The list comes first. That it is right is checked without a tensor
(``check``), its bytes are counted (below), its time is replayed
(``replay``), and it moves tensors (``dpkit.collectives``).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

Chunks = tuple[int, int]  # the first, and one beyond the last


class Message(NamedTuple):
    """Chunks of one rank's buffer, on their way to another rank.

    Example:
        >>> print(Message(2, 0, 4, 6, adds=True))
        2 → 0: + 4–5
    """

    source: int  #: the rank that sends
    target: int  #: the rank that receives
    first: int  #: the first of the chunks
    stop: int  #: one beyond the last of them
    adds: bool = False  #: the target adds them; if not, they replace its own
    lands: int | None = None  #: where the first arrives, if it is not the same

    @property
    def landing(self) -> range:
        """The chunks of the target that change."""
        start = self.first if self.lands is None else self.lands
        return range(start, start + self.stop - self.first)

    def __str__(self) -> str:
        sign = "+" if self.adds else "="
        chunks = _range(range(self.first, self.stop))
        if self.lands is not None:
            chunks += f" as {_range(self.landing)}"
        return f"{self.source} → {self.target}: {sign} {chunks}"


Step = Sequence[Message]


@dataclass(frozen=True)
class Plan:
    """A collective operation, before it is run.

    Each buffer is cut into ``num_chunks`` pieces; the first ones have one
    element more where it does not divide. A step may begin on some ranks
    while others are not done with the one before.

    Example:
        >>> send, back = Message(1, 0, 0, 1, adds=True), Message(0, 1, 0, 1)
        >>> print(Plan("star", 2, 1, [[send], [back]]))
        star: ranks 2, chunks 1, steps 2
          0 | 1 → 0: + 0
          1 | 0 → 1: = 0
    """

    name: str
    world_size: int
    num_chunks: int
    steps: Sequence[Step]

    @property
    def messages(self) -> list[Message]:
        """All messages, in order of steps."""
        return [message for step in self.steps for message in step]

    def __str__(self) -> str:
        lines = [
            f"{self.name}: ranks {self.world_size}, chunks "
            f"{self.num_chunks}, steps {len(self.steps)}"
        ]
        lines += [
            f"{number:3} | " + " | ".join(map(str, step))
            for number, step in enumerate(self.steps)
        ]
        return "\n".join(lines)


def bounds(length: int, num_chunks: int, chunks: range) -> tuple[int, int]:
    """Return the first element of some chunks, and one beyond the last.

    Chunks are cut as ``torch.tensor_split`` cuts: none is left out, and where
    there are more chunks than elements, some are empty.

    Example:
        >>> [bounds(8, 3, range(i, i + 1)) for i in range(3)]
        [(0, 3), (3, 6), (6, 8)]
    """
    # 8 elements in 3 chunks: size 2, and the first 2 chunks are larger by 1.
    # Chunk 2 begins at 2 · 2 + 2 = 6.
    size, larger = divmod(length, num_chunks)
    start = chunks.start * size + min(chunks.start, larger)
    end = chunks.stop * size + min(chunks.stop, larger)
    return start, end


def num_elements(plan: Plan, message: Message, length: int) -> int:
    """Return how many elements a message carries.

    Args:
        plan: The plan that the message is part of.
        message: It carries some of the plan's chunks.
        length: The elements in the buffer of each rank.
    """
    chunks = range(message.first, message.stop)
    start, end = bounds(length, plan.num_chunks, chunks)
    return end - start


@dataclass
class Count:
    """What passes the port of a rank."""

    sent: int = 0  #: elements
    received: int = 0  #: elements
    sends: int = 0  #: messages
    receives: int = 0  #: messages


def count(plan: Plan, length: int) -> list[Count]:
    """Return what passes the port of each rank: ``counts[rank]``.

    The buffer of each rank has ``length`` elements.
    A message without elements is not sent: where there are more chunks than
    elements, some are empty.

    Example:
        >>> there, back = Message(1, 0, 0, 1, adds=True), Message(0, 1, 0, 1)
        >>> count(Plan("star", 2, 1, [[there], [back]]), length=5)[0]
        Count(sent=5, received=5, sends=1, receives=1)
    """
    counts = [Count() for _ in range(plan.world_size)]
    for message in plan.messages:
        elements = num_elements(plan, message, length)
        if elements == 0:
            continue
        source = counts[message.source]
        target = counts[message.target]
        source.sent += elements
        source.sends += 1
        target.received += elements
        target.receives += 1
    return counts


def together(*parts: Iterable[Step]) -> list[Step]:
    """Return the steps of several parts that run at the same time.

    The parts have as many steps, and no rank in common.
    """
    return [
        [message for step in steps for message in step]
        for steps in zip(*parts, strict=True)
    ]


def powers_of_two(p: int) -> list[int]:
    """Return 1, 2, 4, … below ``p``."""
    return [1 << i for i in range((p - 1).bit_length())]


def _range(chunks: range) -> str:
    if not chunks:
        return "none"
    if len(chunks) == 1:
        return str(chunks[0])
    return f"{chunks[0]}–{chunks[-1]}"
