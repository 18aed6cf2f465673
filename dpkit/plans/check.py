"""Check a plan without a tensor: where does each rank's share end up?

Instead of values a chunk holds names: of the ranks whose values were added
up in it, and the number of that chunk. After an allreduce every chunk of
every rank must hold the same chunk of every rank once. A sum of tensors can
be right by chance, or in element 0 alone; a list of names cannot. A ring of
two ranks and two chunks, "0a" for chunk a of rank 0::

               rank 0              rank 1
    before     0a        0b        1a        1b
    step 0     0a + 1a   0b        1a        0b + 1b     added
    step 1     0a + 1a   0b + 1b   0a + 1a   0b + 1b     put in place
"""

from collections.abc import Callable, Sequence

from dpkit.plans.plan import Message, Plan, Step

Names = tuple[tuple[int, int], ...]  # (rank, chunk) of all that was added up
Held = list[list[Names]]  # of each rank, of each chunk


def follow(plan: Plan) -> Held:
    """Return whose values each chunk of each rank holds in the end.

    ``held[rank][chunk]`` has the rank and the chunk of everything that was
    added up in it; what was added twice is there twice.
    """
    held: Held = [
        [((rank, chunk),) for chunk in range(plan.num_chunks)]
        for rank in range(plan.world_size)
    ]
    for number, step in enumerate(plan.steps):
        _check_step(plan, number, step)
        # What is sent is what was there before the step.
        sent = [held[m.source][m.first : m.stop] for m in step]
        for message, chunks in zip(step, sent):
            mine = held[message.target]
            for landed, names in zip(message.landing, chunks):
                before = mine[landed] if message.adds else ()
                mine[landed] = tuple(sorted(before + names))
    return held


def check_allreduce(plan: Plan) -> None:
    """Raise ValueError unless every rank ends up with the sum of all.

    Example:
        >>> from dpkit.plans.trees import star_reduce
        >>> check_allreduce(Plan("half a star", 3, 1, star_reduce(3)))
        Traceback (most recent call last):
            ...
        ValueError: not the sum of all (plan: half a star, rank: 1, chunk: \
0, it holds: chunk 0 of rank 1)
    """
    compare(plan, lambda rank, chunk: everyone(plan, chunk))


def check_broadcast(plan: Plan, root: int = 0) -> None:
    """Raise ValueError unless all have what the root had.

    Example:
        >>> from dpkit.plans.trees import tree_broadcast
        >>> plan = Plan("tree", 3, 1, tree_broadcast(3, root=2))
        >>> check_broadcast(plan, root=2)
        >>> check_broadcast(plan, root=1)
        Traceback (most recent call last):
            ...
        ValueError: not chunk 0 of rank 1 (plan: tree, rank: 0, chunk: 0, \
it holds: chunk 0 of rank 2)
    """
    compare(plan, lambda rank, chunk: ((root, chunk),))


def everyone(plan: Plan, chunk: int) -> Names:
    """Return the names of a chunk that holds the sum of all ranks."""
    return tuple((rank, chunk) for rank in range(plan.world_size))


def compare(plan: Plan, wanted: Callable[[int, int], Names | None]) -> None:
    """Raise ValueError where a chunk is not what is wanted; None: any."""
    for rank, chunks in enumerate(follow(plan)):
        for chunk, names in enumerate(chunks):
            expected = wanted(rank, chunk)
            if expected is not None and names != expected:
                holds = " + ".join(f"chunk {c} of rank {r}" for r, c in names)
                raise ValueError(
                    f"{_fact(names, expected)} (plan: {plan.name}, rank: "
                    f"{rank}, chunk: {chunk}, it holds: {holds})"
                )


def _fact(names: Names, expected: Names) -> str:
    """Return what is wrong with a chunk."""
    if len(set(names)) < len(names):
        return "something was added more than once"
    if len(expected) > 1:
        return "not the sum of all"
    ((rank, chunk),) = expected
    return f"not chunk {chunk} of rank {rank}"


def _check_step(plan: Plan, number: int, step: Step) -> None:
    """Raise ValueError if a step asks a rank to do two things at once.

    A rank can send one message and receive one in the same step.
    """
    for message in step:
        if not _is_possible(plan, message):
            raise ValueError(
                "a message needs two ranks and some chunks of the plan "
                f"(step: {number}, message: {message}, ranks: "
                f"{plan.world_size}, chunks: {plan.num_chunks})"
            )
    _check_once(number, "sends", [m.source for m in step])
    _check_once(number, "receives", [m.target for m in step])


def _is_possible(plan: Plan, message: Message) -> bool:
    ends = {message.source, message.target}
    chunks = {message.first, message.stop - 1, *message.landing}
    return (
        len(ends) == 2
        and message.first < message.stop
        and ends <= set(range(plan.world_size))
        and chunks <= set(range(plan.num_chunks))
    )


def _check_once(number: int, does: str, ranks: Sequence[int]) -> None:
    for rank in ranks:
        if ranks.count(rank) > 1:
            raise ValueError(
                f"a rank {does} more than once in a step (step: {number}, "
                f"rank: {rank}, times: {ranks.count(rank)})"
            )
