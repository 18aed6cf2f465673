"""A schedule as a chart: a line for each device, a column for each tick."""

from dpkit.theory.pipelines.actions import Action, Schedule, parse
from dpkit.theory.pipelines.check import check, needs
from dpkit.theory.pipelines.replay import times

IDLE = "."


def chart(schedule: Schedule) -> str:
    """Write a schedule in which every action takes one tick.

    Raises:
        ValueError: the schedule is wrong.

    Example:
        >>> from dpkit.theory.pipelines.schedules import one_f_one_b
        >>> print(chart(one_f_one_b(2, 3)))
        0F0 0F1 .   0B0 0F2 0B1 .   0B2
        .   1F0 1B0 1F1 1B1 1F2 1B2 .
    """
    found = times(schedule, lambda action: 1)
    last = max((end for _, end in found.values()), default=0)
    rows = []
    for actions in schedule:
        by_tick = {found[action][0]: str(action) for action in actions}
        rows.append([by_tick.get(t, IDLE) for t in range(int(last))])
    width = max((len(word) for row in rows for word in row), default=0)
    return "\n".join(
        " ".join(word.ljust(width) for word in row).rstrip() for row in rows
    )


def check_chart(text: str) -> Schedule:
    r"""Refuse a chart in which an action comes too early; return its lists.

    A chart has a line for each device, a word for each tick: an action, or a
    dot where the device is idle.

    Raises:
        ValueError: the schedule is wrong, or an action is not later than one
            that it needs.

    Example:
        >>> check_chart("0F0 0B0 .\n.   1F0 1B0")
        Traceback (most recent call last):
        ...
        ValueError: 0B0 in tick 1 needs 1B0, which is in tick 2
    """
    schedule = parse(text)
    check(schedule)
    tick = {
        Action.parse(word): t
        for line in text.splitlines()
        for t, word in enumerate(line.split())
        if word != IDLE
    }
    num_stages = 1 + max((a.stage for a in tick), default=-1)
    split = any(a.kind == "I" for a in tick)
    for action, t in tick.items():
        for plain in needs(action, num_stages, split):
            needed = Action(*plain)
            if tick[needed] >= t:
                raise ValueError(
                    f"{action} in tick {t} needs {needed}, which is in tick "
                    f"{tick[needed]}"
                )
    return schedule
