"""Pipeline schedules: who does what, and in which order.

A network is cut into stages, a batch into micro-batches. Each device has a
list of actions (``actions``), written before anything runs. Each schedule
shows its chart: a line for each device, a column for each tick, in which
every action takes one tick and a dot is an idle one.
"""

from dpkit.schedules.actions import (
    BACKWARD,
    FORWARD,
    INPUT_GRADIENTS,
    WEIGHT_GRADIENTS,
    Action,
    Schedule,
)
from dpkit.units import check_known, check_whole


def naive(num_stages: int, num_micro_batches: int = 1) -> Schedule:
    """Return the schedule in which one device works at a time.

    Each micro-batch goes forward through all stages and back, before the next
    one starts.

    Example:
        >>> from dpkit.schedules import chart
        >>> print(chart(naive(2, 2)))
        0F0 .   .   0B0 0F1 .   .   0B1
        .   1F0 1B0 .   .   1F1 1B1 .
    """
    _check_counts(num_stages, num_micro_batches)
    return [
        [Action(r, kind, m) for m in range(num_micro_batches) for kind in "FB"]
        for r in range(num_stages)
    ]


def gpipe(num_stages: int, num_micro_batches: int) -> Schedule:
    """Return the schedule of all forward passes, then all backward passes.

    Stage r starts at tick r, and its first backward pass waits for the stages
    behind it.

    Example:
        >>> from dpkit.schedules import chart
        >>> print(chart(gpipe(2, 3)))
        0F0 0F1 0F2 .   .   0B0 0B1 0B2
        .   1F0 1F1 1F2 1B0 1B1 1B2 .

    Source:
        Huang et al., "GPipe", 2019.
    """
    _check_counts(num_stages, num_micro_batches)
    return [
        [Action(r, kind, m) for kind in "FB" for m in range(num_micro_batches)]
        for r in range(num_stages)
    ]


def one_f_one_b(num_stages: int, num_micro_batches: int) -> Schedule:
    """Return 1F1B: a few forward passes, then one of each in turn.

    Stage r warms up with p - r - 1 forward passes, as many as there are
    stages behind it, so that it keeps at most p - r micro-batches.

    Example:
        With three stages they warm up with 2, 1 and 0 forward passes:

        >>> from dpkit.schedules import chart
        >>> print(chart(one_f_one_b(3, 4)))
        0F0 0F1 0F2 .   .   0B0 0F3 0B1 .   0B2 .   0B3
        .   1F0 1F1 .   1B0 1F2 1B1 1F3 1B2 .   1B3 .
        .   .   2F0 2B0 2F1 2B1 2F2 2B2 2F3 2B3 .   .
    """
    _check_counts(num_stages, num_micro_batches)
    schedule = []
    for stage in range(num_stages):
        warm_up = min(num_stages - stage - 1, num_micro_batches)
        order = _alternate(warm_up, num_micro_batches)
        schedule.append([Action(stage, kind, m) for kind, m in order])
    return schedule


# p devices, v stages (chunks) a device, m micro-batches. A step is the number
# of a forward pass of the device, or of a backward pass. A group of p
# micro-batches takes p · v steps; place is the step in its group. With p = 2,
# v = 2, m = 4:
#
#     step                0  1  2  3    4  5  6  7
#     group               0  0  0  0    1  1  1  1     step // 4
#     place               0  1  2  3    0  1  2  3     step % 4
#     chunk, forward      0  0  1  1    0  0  1  1     place // 2
#     chunk, backward     1  1  0  0    1  1  0  0     the last one first
#     micro-batch         0  1  0  1    2  3  2  3     2 · group + place % 2
#
# Chunk c of device r is stage 2c + r. So device 1 does in step 6 3F2, which
# is stage 2 · 1 + 1, micro-batch 2 · 1 + 0. The warm-ups are 4 and 2.


def interleaved(
    num_devices: int, num_micro_batches: int, *, chunks_per_device: int
) -> Schedule:
    """Return 1F1B with several stages a device: r, r + p, r + 2p and so on.

    Micro-batches go through in groups of p: a group through the first stage
    of each device, then through the second of each, and so on.

    Raises:
        ValueError: the micro-batches do not divide into groups of p.

    Example:
        >>> from dpkit.schedules import chart
        >>> print(chart(interleaved(2, 4, chunks_per_device=2)))
        0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 .   2B2 .   2B3 0B2 0B3
        .   1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3 .

    Source:
        Narayanan et al., "Efficient large-scale language model training on
        GPU clusters using Megatron-LM", 2021.
    """
    p, m, v = num_devices, num_micro_batches, chunks_per_device
    _check_counts(p, m)
    if v < 1:
        raise ValueError(f"a device needs a chunk (chunks_per_device: {v})")
    if m % p:
        raise ValueError(
            "interleaving needs as many micro-batches as devices, or a "
            f"multiple (micro-batches: {m}, devices: {p})"
        )
    schedule = []
    for rank in range(p):
        warm_up = min(2 * (p - rank - 1) + (v - 1) * p, m * v)
        actions = []
        for kind, step in _alternate(warm_up, m * v):
            group, turn = divmod(step, p * v)
            chunk = turn // p if kind == FORWARD else v - 1 - turn // p
            micro_batch = group * p + turn % p
            actions.append(Action(chunk * p + rank, kind, micro_batch))
        schedule.append(actions)
    return schedule


def zero_bubble_h1(num_stages: int, num_micro_batches: int) -> Schedule:
    """Return 1F1B whose backward is split, the weights' half put off.

    Only the gradients of inputs hold up the stage before. Stage r puts those
    of the weights off by r micro-batches, and makes up for it at the end,
    where 1F1B would wait.

    Example:
        >>> from dpkit.schedules import chart
        >>> print(chart(zero_bubble_h1(3, 4)))
        0F0 0F1 0F2 .   .   0I0 0W0 0F3 0I1 0W1 0I2 0W2 0I3 0W3
        .   1F0 1F1 .   1I0 1F2 1I1 1W0 1F3 1I2 1W1 1I3 1W2 1W3
        .   .   2F0 2I0 2F1 2I1 2F2 2I2 2W0 2F3 2I3 2W1 2W2 2W3

    Source:
        Qi, Wan, Huang and Lin, "Zero bubble pipeline parallelism", 2024.
    """
    schedule = []
    whole = one_f_one_b(num_stages, num_micro_batches)
    for stage, actions in enumerate(whole):
        split = []
        for action in actions:
            m = action.micro_batch
            if action.kind == FORWARD:
                split.append(action)
                continue
            split.append(Action(stage, INPUT_GRADIENTS, m))
            if m >= stage:
                split.append(Action(stage, WEIGHT_GRADIENTS, m - stage))
        late = range(max(num_micro_batches - stage, 0), num_micro_batches)
        put_off = [Action(stage, WEIGHT_GRADIENTS, m) for m in late]
        schedule.append(split + put_off)
    return schedule


def by_name(
    name: str, num_devices: int, *, num_stages: int, num_micro_batches: int
) -> Schedule:
    """Return the schedule "naive", "gpipe", "1f1b", "interleaved" or "zb-h1".

    Args:
        name: The name of the schedule, in letters of either case.
        num_devices: How many devices work on it.
        num_stages: As many as devices; for "interleaved" a multiple of them.
        num_micro_batches: How many parts the batch is cut into.

    Raises:
        ValueError: the name is unknown, or its counts do not fit.

    Example:
        >>> plan = by_name("interleaved", 2, num_stages=4, num_micro_batches=2)
        >>> print(*plan[0])
        0F0 0F1 2F0 2F1 2B0 2B1 0B0 0B1
    """
    name = str(name).lower()
    check_known("schedule", name, sorted(SCHEDULE_NAMES))
    if name == "interleaved":
        if num_stages % num_devices:
            raise ValueError(
                "interleaving needs as many stages on each device (stages: "
                f"{num_stages}, devices: {num_devices})"
            )
        chunks = num_stages // num_devices
        return interleaved(
            num_devices, num_micro_batches, chunks_per_device=chunks
        )
    if num_stages != num_devices:
        raise ValueError(
            f"{name} has one stage on each device (stages: {num_stages}, "
            f'devices: {num_devices}); only "interleaved" has several'
        )
    return NAMED[name](num_stages, num_micro_batches)


# Those with one stage on each device; then all. A new one also has a row in
# ``bubble.FORMULAS``.
NAMED = {
    "naive": naive,
    "gpipe": gpipe,
    "1f1b": one_f_one_b,
    "zb-h1": zero_bubble_h1,
}
SCHEDULE_NAMES = (*NAMED, "interleaved")


# warm_up 2 of 4:    F0 F1    F2 B0 F3 B1    B2 B3


def _alternate(warm_up: int, total: int) -> list[tuple[str, int]]:
    """Return F × warm_up, then F and B in turn, then the rest of B."""
    order = [(FORWARD, m) for m in range(warm_up)]
    for m in range(total - warm_up):
        order += [(FORWARD, warm_up + m), (BACKWARD, m)]
    return order + [(BACKWARD, m) for m in range(total - warm_up, total)]


def _check_counts(num_stages: int, num_micro_batches: int) -> None:
    check_whole("num_stages", num_stages)
    check_whole("num_micro_batches", num_micro_batches)
    if num_stages < 1 or num_micro_batches < 1:
        raise ValueError(
            "a schedule needs a stage and a micro-batch (stages: "
            f"{num_stages}, micro-batches: {num_micro_batches})"
        )
