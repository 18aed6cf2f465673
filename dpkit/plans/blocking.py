"""In which order a rank sends and receives, when a send blocks.

A send that blocks ends when the message has been received. If all ranks of a
ring first send and then receive, nobody receives, and all wait for ever::

    rank 0  send to 1 …        rank 1  send to 2 …        rank 2  send to 0 …

So the messages of a step are sent in turns. In a turn each rank takes part in
one message at most: while one rank sends, the other one receives.
"""

from collections.abc import Sequence
from typing import NamedTuple

from dpkit.plans.plan import Message, Plan, Step


class Call(NamedTuple):
    """What a rank does next."""

    sends: bool  #: if not, it receives
    message: Message
    step: int  #: of the plan


# The messages of a step, each in the first turn in which both ranks are free:
#
#     ring of 4    0→1  1→2  2→3  3→0
#     turn 0       0→1       2→3
#     turn 1            1→2       3→0
#
# A ring of 3 takes three turns: 0→1, 1→2 and 2→0 share a rank each.


def turns(step: Step) -> list[list[Message]]:
    """Divide the messages of a step so that no rank is in a turn twice.

    A rank has two messages at most, so three turns are enough.
    """
    found: list[list[Message]] = []
    for message in step:
        ends = {message.source, message.target}
        free = [t for t in found if all(ends.isdisjoint(m[:2]) for m in t)]
        if not free:
            free = [[]]
            found += free
        free[0].append(message)
    return found


def calls(plan: Plan) -> list[list[Call]]:
    """Return what each rank does, in an order in which sends may block.

    Example:
        >>> from dpkit.plans.trees import star
        >>> for sends, message, _ in calls(star(2))[1]:
        ...     print("send" if sends else "receive", message)
        send 1 → 0: + 0
        receive 0 → 1: = 0
    """
    found: list[list[Call]] = [[] for _ in range(plan.world_size)]
    for number, step in enumerate(plan.steps):
        for turn in turns(step):
            for message in turn:
                found[message.source].append(Call(True, message, number))
                found[message.target].append(Call(False, message, number))
    return found


def check_blocking(orders: Sequence[Sequence[Call]]) -> None:
    """Raise ValueError if ranks that block wait for each other for ever.

    Example:
        >>> there, back = Message(0, 1, 0, 1), Message(1, 0, 0, 1)
        >>> check_blocking([
        ...     [Call(True, there, 0), Call(False, back, 0)],
        ...     [Call(True, back, 0), Call(False, there, 0)],
        ... ])
        Traceback (most recent call last):
            ...
        ValueError: the ranks wait for each other (rank 0: to send to 1, \
rank 1: to send to 0)
    """
    left = [list(order) for order in orders]  # what each rank has yet to do
    moved = True
    while moved:
        moved = False
        for order in filter(None, left):
            sends, message, step = order[0]
            other = left[message.target if sends else message.source]
            if other[:1] == [(not sends, message, step)]:
                del order[0], other[0]
                moved = True
    waiting = {rank: order[0] for rank, order in enumerate(left) if order}
    if waiting:
        wishes = [f"rank {r}: {_wish(call)}" for r, call in waiting.items()]
        raise ValueError(
            f"the ranks wait for each other ({', '.join(wishes)})"
        )


def _wish(call: Call) -> str:
    if call.sends:
        return f"to send to {call.message.target}"
    return f"to receive from {call.message.source}"
