"""Bugs of the schedules of pipelines."""

from collections import Counter

from dpbook.museum.exhibit import Exhibit, Version, claim
from dpkit.schedules import (
    IDLE,
    Action,
    Schedule,
    chart,
    check_chart,
    gpipe,
    one_f_one_b,
    parse,
    times,
)
from dpkit.schedules.check import check


def warm_up_and_pairs(p: int, m: int) -> Schedule:
    """List 1F1B: a warm-up, pairs, and the rest of backward."""
    schedule = []
    for s in range(p):
        ahead = min(s + 1, m)
        order = [("F", i) for i in range(ahead)]
        for i in range(m - ahead):
            order += [("B", i), ("F", ahead + i)]
        order += [("B", i) for i in range(m - ahead, m)]
        schedule.append([Action(s, kind, i) for kind, i in order])
    return schedule


def who_waits_for_whom(version: Version) -> None:
    """Follow the lists of 1 to 4 stages: all end."""
    for p in range(1, 5):
        check(version(p, 4), p, 4)


def every_action_once(version: Version) -> None:
    """Count the actions of three stages and four micro-batches."""
    found = Counter(a for actions in version(3, 4) for a in actions)
    wanted = Counter(a for actions in gpipe(3, 4) for a in actions)
    claim(found == wanted, "an action is missing, or there twice")


def listed_by_hand() -> Schedule:
    """List 1F1B of two stages and eight micro-batches, by hand."""
    return parse(
        "0F0 0F1 0B0 0F2 0B1 0F3 0B2 0F4 0B3 0F5 0B4 0F6 0B5 0F7 0B6 "
        "0B5 0B6 0B7 0B7\n"
        "1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3 1F4 1B4 1F5 1F6 1F7"
    )


def listed_once() -> Schedule:
    """List it by the rule."""
    return one_f_one_b(2, 8)


def each_action_once(version: Version) -> None:
    """Look for each action of two stages and eight micro-batches."""
    check(version(), num_stages=2, num_micro_batches=8)


def number_of_actions(version: Version) -> None:
    """Count 2 · 2 · 8 actions."""
    found = sum(map(len, version()))
    claim(found == 32, f"not as many actions as there should be ({found})")


def chart_by_hand() -> str:
    """Draw 1F1B on two stages, a column a tick."""
    return """
        0F0 0F1 0B0 0F2 0B1 .   0B2
        .   1F0 1B0 1F1 1B1 1F2 1B2
    """


def chart_of_times() -> str:
    """Draw it from the ticks in which actions can be."""
    return chart(one_f_one_b(2, 3))


def needs_are_earlier(version: Version) -> None:
    """Look up the tick of everything that an action needs."""
    check_chart(version())


def lists_of_the_chart(version: Version) -> None:
    """Check the lists, without their ticks."""
    check(parse(version().replace(IDLE, " ").strip()))


def forward_and_back(p: int) -> Schedule:
    """List what one device does with p stages, forward and back."""
    forward = [Action(s, "F", 0) for s in range(0, p)]
    return [forward + [Action(s, "B", 0) for s in range(0, p, -1)]]


def forward_and_from_the_last(p: int) -> Schedule:
    """List it, backward from stage p - 1 to 0."""
    forward = [Action(s, "F", 0) for s in range(p)]
    return [forward + [Action(s, "B", 0) for s in reversed(range(p))]]


def backward_of_each_stage(version: Version) -> None:
    """Look for the forward and the backward pass of four stages."""
    check(version(4), num_stages=4, num_micro_batches=1)


def forward_of_each_stage(version: Version) -> None:
    """See that it runs, and that the loss is that of all four stages."""
    found = [a.stage for a in version(4)[0] if a.kind == "F"]
    claim(found == [0, 1, 2, 3], f"not all stages forward ({found})")


def longest_list(schedule: Schedule) -> int:
    """Count ticks: as many as the busiest device has actions."""
    return max(len(actions) for actions in schedule)


def last_end(schedule: Schedule) -> int:
    """Count ticks until the last action is done, each after its needs."""
    spans = times(schedule, {"F": 1, "B": 1}).values()
    return int(max(end for _, end in spans))


def lower_bound(version: Version) -> None:
    """Hold the ticks of 1F1B against 2(m + p - 1), which none goes below."""
    for p, m in ((1, 4), (2, 4), (4, 8)):
        ticks = version(one_f_one_b(p, m))
        least = 2 * (m + p - 1)
        found = f"stages: {p}, micro-batches: {m}, ticks: {ticks}"
        fact = f"sooner than can be ({found}, at least: {least})"
        claim(ticks >= least, fact)


def enough_for_the_work(version: Version) -> None:
    """See that there is a tick for each action of a device."""
    claim(version(one_f_one_b(4, 8)) >= 16, "fewer ticks than actions")


EXHIBITS = [
    Exhibit(
        "short warm-up",
        wrong=warm_up_and_pairs,
        right=one_f_one_b,
        check=who_waits_for_whom,
        careless=every_action_once,
    ),
    Exhibit(
        "listed twice",
        wrong=listed_by_hand,
        right=listed_once,
        check=each_action_once,
        careless=number_of_actions,
    ),
    Exhibit(
        "chart",
        wrong=chart_by_hand,
        right=chart_of_times,
        check=needs_are_earlier,
        careless=lists_of_the_chart,
    ),
    Exhibit(
        "loop that is empty",
        wrong=forward_and_back,
        right=forward_and_from_the_last,
        check=backward_of_each_stage,
        careless=forward_of_each_stage,
    ),
    Exhibit(
        "ticks without waiting",
        wrong=longest_list,
        right=last_end,
        check=lower_bound,
        careless=enough_for_the_work,
    ),
]
