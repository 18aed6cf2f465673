"""A schedule as a chart: a line for each device, a column for each tick."""

from dpkit.schedules.actions import Action, Schedule, Triple, parse
from dpkit.schedules.check import steps
from dpkit.schedules.replay import times

IDLE = "."


def chart(schedule: Schedule) -> str:
    """Write a schedule in which every action takes one tick.

    Example:
        >>> from dpkit.schedules.named import one_f_one_b
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

    Example:
        >>> check_chart("0F0 0B0 .\n.   1F0 1B0")
        Traceback (most recent call last):
        ...
        ValueError: 0B0 in tick 1 needs 1B0, which is in tick 2
    """
    schedule = parse(text)
    needs: dict[Triple, list[Triple]] = {
        action: needed for _, action, needed in steps(schedule)
    }
    tick: dict[Triple, int] = {
        Action.parse(word): t
        for line in text.splitlines()
        for t, word in enumerate(line.split())
        if word != IDLE
    }
    for action, t in tick.items():
        for needed in needs[action]:
            if tick[needed] >= t:
                raise ValueError(
                    f"{Action(*action)} in tick {t} needs {Action(*needed)}, "
                    f"which is in tick {tick[needed]}"
                )
    return schedule
