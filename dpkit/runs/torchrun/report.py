"""What happened in a run: lines and tables, with what they rest on.

Counted are bytes, operations and memory: they would be the same on GPUs.
Modelled are times: they rest on the presets, and on what is assumed.
"""

from bisect import bisect_right
from collections import Counter, defaultdict
from dataclasses import replace
from itertools import pairwise
from statistics import median
from textwrap import wrap

from dpkit.runs.forked.proxy import Arrivals
from dpkit.runs.torchrun import host_share, report_of_one
from dpkit.runs.torchrun.facts import RankFacts
from dpkit.runs.torchrun.failures import RunFailure, run_failure
from dpkit.runs.torchrun.launching import RankReport, Run
from dpkit.runs.torchrun.races import NothingOrders
from dpkit.runs.torchrun.section import Section, count_columns
from dpkit.sim.clock import SECOND, Span
from dpkit.sim.timeline import DeviceTimes, Timeline, history
from dpkit.tables import table
from dpkit.units import show_memory, show_seconds

_WIDTH = 77  # of a line that is wrapped
LONGEST = 5  # kinds of operations that are listed
FOUND = "Found"  # the title of what the watchers have found
MARK = "!"  # before each of it
MOST_NAMED = 4  # ranks of a group

Window = tuple[float, float]  # seconds of the timeline


def report(done: Run) -> list[Section]:
    """Return the sections of the report of a run."""
    ranks = {r: one for r, one in enumerate(done.ranks) if one is not None}
    facts = {rank: one.facts for rank, one in ranks.items()}
    if not facts:
        return []
    found = _findings(ranks, done)
    if done.failure is not None and not done.is_one_process:
        sections = [found, _memory(facts), _traffic(facts), _notes(ranks)]
    else:
        sections = [
            found,
            _steps(done, facts),
            _devices(done, facts),
            _memory(facts),
            *_between_devices(done, facts),
            _longest(facts, done.timeline),
            _notes(ranks),
            _assumptions(done.timeline),
        ]
    return [s for s in sections if s.lines or s.table is not None]


def failed(done: Run) -> RunFailure | None:
    """Return why a run has failed, and at which line each rank was."""
    if done.failure is None:
        return None
    return run_failure(done.failures(), done.failure)


def _between_devices(
    done: Run, facts: dict[int, RankFacts]
) -> tuple[Section, Section]:
    """Return what is sent between devices, and which one others wait for."""
    if not done.is_one_process:
        return _traffic(facts), _waiting(done.arrivals)
    steps = len(next(iter(facts.values())).steps)
    return (
        report_of_one.copied_between(done.timeline.spans, steps),
        report_of_one.busiest(_computing_by_step(facts, done.timeline)),
    )


def _computing_by_step(
    facts: dict[int, RankFacts], timeline: Timeline
) -> list[dict[int, float]]:
    """Return how long each device computes in each step after the first."""
    marks = [s.mark / SECOND for s in next(iter(facts.values())).steps]
    parts = [defaultdict[str, list[Span]](list) for _ in pairwise(marks)]
    for span in timeline.spans:
        first = max(bisect_right(marks, span.start) - 1, 0)
        for i in range(first, len(parts)):
            if span.end <= marks[i]:
                break
            part = _cut(span, marks[i], marks[i + 1])
            parts[i][span.device].append(part)
    return [
        {d: _seconds_computing(spans[f"sim:{d}"]) for d in facts}
        for spans in parts
    ]


def _seconds_computing(spans: list[Span]) -> float:
    devices = Timeline(spans=spans).summary().devices
    return sum(times.busy for times in devices.values())


def _cut(span: Span, begin: float, end: float) -> Span:
    """Return the part of a span that lies in a time."""
    return replace(span, start=max(span.start, begin), end=min(span.end, end))


def seconds_of_steps(facts: RankFacts) -> list[float]:
    """Return what each step took after the first, by the device's clock."""
    marks = [step.mark / SECOND for step in facts.steps]
    return [b - a for a, b in pairwise(marks)]


def _steps(done: Run, facts: dict[int, RankFacts]) -> Section:
    """Return how long a step of the optimizer takes, with launches or not."""
    lines = []
    counts = {rank: len(one.steps) for rank, one in facts.items()}
    seconds = [s for one in facts.values() for s in seconds_of_steps(one)]
    if any(seconds):
        lines.append(
            f"{show_seconds(median(seconds))} (median; from "
            f"{show_seconds(min(seconds))} to {show_seconds(max(seconds))})"
        )
        share = _share_of_host(done, facts)
        lines += host_share.lines(median(seconds), share)
    number = max(counts.values(), default=0)
    return Section(
        f"A step of the optimizer, one of {number}", "modelled", lines
    )


def _share_of_host(done: Run, facts: dict[int, RankFacts]) -> float:
    """Return in which part of its steps a GPU waits for launches.

    It is the GPU that waits least. A process that has all GPUs waits where
    none of them has anything to do.
    """
    if done.is_one_process:
        gpus = [f"sim:{device}" for device in facts]
        one = next(iter(facts.values()))
        return _waiting_for(done, one, "host", gpus)
    return min(
        _waiting_for(done, one, f"host:{rank}", [f"sim:{rank}"])
        for rank, one in facts.items()
    )


def _waiting_for(
    done: Run, facts: RankFacts, host: str, gpus: list[str]
) -> float:
    window = _window(facts, done.timeline)
    work = [s for gpu in gpus for s in _within(done.timeline, gpu, window)]
    launches = _within(done.timeline, host, window)
    seconds = host_share.seconds_waiting(launches, work)
    return seconds / (window[1] - window[0])


def _devices(done: Run, facts: dict[int, RankFacts]) -> Section:
    """Return what each device does between its first step and its last.

    With fewer than two steps: in the whole run.
    """
    rows, lines = [], []
    for rank, one in facts.items():
        window = _window(one, done.timeline)
        spans = _within(done.timeline, f"sim:{rank}", window)
        if spans:
            rows.append({"GPU": rank, **_shares(spans, window)})
    one = next(iter(facts.values()))
    if done.is_one_process and rows:
        window = _window(one, done.timeline)
        lines = [
            report_of_one.of_process(
                _within(done.timeline, "host", window), window[1] - window[0]
            )
        ]
    when = "after the first step" if len(one.steps) > 1 else "in the whole run"
    return Section(
        f"Where the time goes, {when}",
        "modelled",
        lines,
        table(rows) if rows else None,
    )


def _shares(spans: list[Span], window: Window) -> dict[str, str]:
    start, end = window
    (times,) = Timeline(spans=spans).summary().devices.values()
    whole = end - start
    return {
        "computing": f"{times.busy / whole:.0%}",
        "sending": f"{times.copying / whole:.0%}",
        "of it hidden": f"{_hidden(times) / whole:.0%}",
        "idle": f"{1 - (times.busy + times.exposed) / whole:.0%}",
    }


def _hidden(times: DeviceTimes) -> float:
    return max(0.0, times.copying - times.exposed)


def _window(facts: RankFacts, timeline: Timeline) -> Window:
    """Return when the first step and the last ended; or all of a run."""
    if len(facts.steps) < 2:
        return 0.0, timeline.makespan
    return facts.steps[0].mark / SECOND, facts.steps[-1].mark / SECOND


def _within(timeline: Timeline, device: str, window: Window) -> list[Span]:
    """Return the spans of a device in a time, cut to size."""
    start, end = window
    return [
        _cut(s, start, end)
        for s in timeline.spans
        if s.device == device and s.end > start and s.start < end
    ]


def _memory(facts: dict[int, RankFacts]) -> Section:
    """Return how much memory a device needs, in which step, and for what."""
    rows = []
    for rank, one in facts.items():
        rows.append(
            {
                "GPU": rank,
                "peak": show_memory(one.peak_bytes),
                "first in step": _step_of_peak(one),
                **_held(one),
            }
        )
    return Section("Memory of tensors at its peak", "counted", [], table(rows))


def _step_of_peak(facts: RankFacts) -> int | str:
    for number, step in enumerate(facts.steps, 1):
        if step.peak_bytes == facts.peak_bytes:
            return number
    return "after them" if facts.steps else ""


def _held(facts: RankFacts) -> dict[str, str]:
    """Return what the memory was for when most was taken."""
    if not facts.blocks:
        return {}
    fullest = max(history(facts.blocks), key=lambda m: sum(m.values()))
    return {name: show_memory(count) for name, count in fullest.items()}


def _traffic(facts: dict[int, RankFacts]) -> Section:
    """Return what rank 0 sends, in the whole run and for a step."""
    if 0 not in facts:
        return Section("", "", [])
    steps = len(facts[0].steps)
    rows = []
    groups = {one.ranks for one in facts[0].traffic}
    sizes = Counter(map(len, groups))
    for one in facts[0].traffic:
        is_named = sizes[len(one.ranks)] > 1
        rows.append(
            {
                "rank 0 calls": one.kind,
                "among": (
                    f"ranks {_shortened(one.ranks)}"
                    if is_named
                    else len(one.ranks) or 2
                ),
                **count_columns(one.calls, one.num_bytes, steps),
            }
        )
    return Section(
        "What is sent", "counted", [], table(rows) if rows else None
    )


def _shortened(ranks: tuple[int, ...]) -> str:
    """Return the numbers of ranks in a few words: 0, 2, … 14."""
    first, second, *rest = map(str, ranks)
    if len(rest) > MOST_NAMED - 2:
        rest = ["…", rest[-1]]
    return ", ".join([first, second, *rest]).replace("…,", "…")


def _waiting(arrivals: Arrivals) -> Section:
    """Return which rank the others waited for."""
    waited: defaultdict[int, float] = defaultdict(float)
    last: defaultdict[int, int] = defaultdict(int)
    for events in arrivals.values():
        marks = {rank: event.mark or 0 for rank, event in events.items()}
        latest = max(marks, key=lambda rank: marks[rank])
        lost = sum(marks[latest] - mark for mark in marks.values())
        if lost:
            waited[latest] += lost / SECOND
            last[latest] += 1
    if not waited:
        return Section("", "", [])
    worst = max(waited, key=lambda rank: waited[rank])
    line = (
        f"most for rank {worst}: it came last to {last[worst]} of "
        f"{len(arrivals)}, and the others waited "
        f"{show_seconds(waited[worst])} for it, added up"
    )
    return Section("Who the ranks wait for in collectives", "modelled", [line])


def _longest(facts: dict[int, RankFacts], timeline: Timeline) -> Section:
    """Return which operations take most of the time of device 0."""
    if 0 not in facts:
        return Section("", "", [])
    start, end = _window(facts[0], timeline)
    spans = _within(timeline, "sim:0", (start, end))
    total: defaultdict[str, float] = defaultdict(float)
    count: defaultdict[str, int] = defaultdict(int)
    for span in spans:
        total[span.name] += span.end - span.start
        count[span.name] += 1
    longest = sorted(total, key=lambda name: -total[name])[:LONGEST]
    rows = [
        {
            "operation": name,
            "times": count[name],
            "of the time": f"{total[name] / (end - start):.0%}",
        }
        for name in longest
    ]
    return Section(
        "What GPU 0 spends most time on",
        "modelled",
        [],
        table(rows) if rows else None,
    )


def _findings(ranks: dict[int, RankReport], done: Run) -> Section:
    """Return what was found, or else what it was looked for."""
    one = next(iter(ranks.values()))
    if done.is_one_process:
        lines = [f"{said} ({line})" for said, line in one.findings.items()]
    else:
        lines = found_among(ranks, have_ended=done.failure is None)
    if lines:
        return Section(FOUND, "", lines, mark=MARK)
    if not one.looked_for:
        why = "nothing was looked for: one process is compared with no other"
        line = f"{why}; --races looks for {NothingOrders.looks_for}"
        return Section(FOUND, "", [line])
    kinds = [k for k in one.looked_for if len(ranks) > 1 or not k.needs_ranks]
    looked_for = ", ".join(kind.looks_for for kind in kinds if kind.looks_for)
    lines = wrap(f"looked for: {looked_for}", _WIDTH)
    return Section(FOUND, "", ["nothing was found", *lines])


def found_among(
    ranks: dict[int, RankReport], have_ended: bool = True
) -> list[str]:
    """Return what the watchers have found, each sentence once.

    Args:
        ranks: What each rank reports.
        have_ended: Whether all ranks have ended.
    """
    found: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for rank, one in ranks.items():
        for finding in one.findings.items():
            found[finding].append(rank)
    lines = [
        f"{sentence} ({line}; {_ranks(which)})"
        for (sentence, line), which in found.items()
    ]
    if len(ranks) > 1:
        lines += _equal_on_all(list(ranks.values()))
        lines += _compared(ranks, have_ended)
    if have_ended:
        lines += _unequal_steps(ranks)
    return lines


def _compared(ranks: dict[int, RankReport], have_ended: bool) -> list[str]:
    """Return what watchers find between ranks."""
    lines = []
    for kind in next(iter(ranks.values())).compared:
        if kind.needs_end and not have_ended:
            continue
        kept = {rank: one.compared.get(kind) for rank, one in ranks.items()}
        if None not in kept.values():
            lines += kind.compare(kept)
    return lines


def _unequal_steps(ranks: dict[int, RankReport]) -> list[str]:
    """Return a line if ranks have done different numbers of steps."""
    counts = {rank: len(one.facts.steps) for rank, one in ranks.items()}
    if len(set(counts.values())) < 2:
        return []
    counted = ", ".join(f"rank {r}: {n}" for r, n in counts.items())
    return [
        f"ranks have done different numbers of steps ({counted}); they may "
        "have different numbers of batches, and then the first wait for ever "
        "where all have to call a collective"
    ]


def _equal_on_all(ranks: list[RankReport]) -> list[str]:
    """Return the sentences for what is equal on all ranks and should not."""
    lines = []
    for sentence in ranks[0].kept:
        kept = [one.kept.get(sentence, []) for one in ranks]
        known = min(map(len, kept))  # of a run that has failed, not all
        if known and all(one[:known] == kept[0][:known] for one in kept):
            lines.append(sentence)
    return lines


def _ranks(which: list[int]) -> str:
    listed = ", ".join(map(str, which))
    return f"rank {listed}" if len(which) == 1 else f"ranks {listed}"


def _notes(ranks: dict[int, RankReport]) -> Section:
    """Return what ran otherwise than it would on a GPU."""
    notes: dict[str, str] = {}
    for one in ranks.values():
        notes = {**one.notes, **notes}
    lines = [f"{sentence} ({line})" for sentence, line in notes.items()]
    return Section("Otherwise than on a GPU", "", lines)


def _assumptions(timeline: Timeline) -> Section:
    return Section("What the times rest on", "", timeline.assumptions)
