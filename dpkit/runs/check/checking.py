"""``python -m dpkit check``: what ranks compute, against what one does.

The ranks run the script, and keep what they do. Then one rank runs it, and
gets what the loaders of all ranks have yielded, so that it has the same global
batch, whatever batch size the script's text has. Where that is not possible,
as the script has no loaders or divides its batch by itself, the script runs as
one rank as it is. Which examples the model has got is compared: with others,
gradients differ as they should, and that is no alarm.
"""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from dpkit import sim
from dpkit.runs.check.among_ranks import (
    compare_among,
    compare_data,
    ranks_agree,
)
from dpkit.runs.check.averaging_steps import with_means, with_own
from dpkit.runs.check.comparison import (
    all_clear,
    nothing_compared,
    steps_compared,
)
from dpkit.runs.check.divided_parameters import without_parts
from dpkit.runs.check.kept import Kept
from dpkit.runs.check.local_steps import (
    averages_later,
    never_equal_again,
    rounds_of,
    step_alone,
)
from dpkit.runs.check.nearness import near_numbers
from dpkit.runs.check.played import Tape, UnlikeBatchesError, read_tapes
from dpkit.runs.check.recorded_runs import kept_of_one, kept_of_ranks
from dpkit.runs.check.same_examples import (
    are_seen,
    steps_with_same_examples,
    unseen,
)
from dpkit.runs.check.with_one import compare_first, compare_with_one
from dpkit.runs.check.written_files import FilesPutBack
from dpkit.runs.forked.running import RankError
from dpkit.runs.torchrun.report import found_among
from dpkit.runs.torchrun.script import Script

MORE_STEPS = 10  # times those that were asked for


class Verdict(NamedTuple):
    """What came of a check."""

    alarms: list[str]  # what is wrong, in lines
    said: list[str]  # what was compared, and with what


class WithOne(NamedTuple):
    """What came of a comparison with one rank."""

    alarms: list[str]
    how: str  # which examples one rank has had
    missing: str  # why it was not compared, or not whole; "" if it was
    steps: int  # in which it was


def compare_ranks(
    script: Script, of_one: Script | None, ranks: int, steps: int
) -> Verdict:
    """Compare ranks that run a script with each other, and with one.

    Args:
        script: The script.
        of_one: What one rank runs, with the same global batch. None: the
            script, with the batches of the ranks.
        ranks: How many there are.
        steps: Of the optimizer, after which they end.

    Raises:
        RankError: a rank has failed, or none could go on.
    """
    with TemporaryDirectory() as name:
        files = FilesPutBack(Path(name))
        try:
            verdict = _verdict(
                script, of_one=of_one, ranks=ranks, steps=steps, files=files
            )
        except RankError as error:
            for line in files.said():
                error.add_note(line)
            raise
        return verdict._replace(said=[*verdict.said, *files.said()])


def _verdict(
    script: Script,
    *,
    of_one: Script | None,
    ranks: int,
    steps: int,
    files: FilesPutBack,
) -> Verdict:
    """Return what :func:`compare_ranks` does, without a word of files."""
    _configure(ranks)
    kept, reports = kept_of_ranks(script, ranks, steps, files)
    several = with_means(without_parts(kept))
    found = [f"found by torchrun: {x}" for x in found_among(reports)]
    if nothing_compared(several[0], ""):
        return Verdict([*found, *compare_among(several)], [])
    if step_alone(several):
        several = _longer(script, several, steps, files)
        verdict = judge_rounds(several)
        return verdict._replace(alarms=found + verdict.alarms)
    alarms = [*found, *compare_among(several)]
    if not ranks_agree(several):
        return Verdict(alarms, [])
    _configure(1)
    if of_one is not None:
        one = kept_of_one(
            of_one,
            steps=steps,
            several=several,
            files=files,
            tape=None,
            prints=True,
        )
        compared = _as_asked(one, several)
    else:
        compared = _with_batches_of(script, several, steps, files)
    alarms += compared.alarms
    said = _said(compared, several, bool(alarms))
    said += _what_was_compared(compared, several, bool(found))
    return Verdict(alarms, said)


def _longer(
    script: Script, several: list[Kept], steps: int, files: FilesPutBack
) -> list[Kept]:
    """Return what ranks keep that step alone, in more steps if need be.

    A run that was stopped in its first round does not show whether they
    average their parameters after it.
    """
    was_stopped = len(several[0].digests) == steps
    if rounds_of(several).equal or not was_stopped:
        return several
    most = MORE_STEPS * steps
    print(
        f"in {steps} steps, ranks step by gradients of their own; they run "
        f"again, up to step {most}, to see whether they average their "
        "parameters later, as local SGD does",
        flush=True,
    )
    with suppress(RankError):  # in steps that were not asked for
        longer, _ = kept_of_ranks(
            script, len(several), most, files, prints=False
        )
        longer = without_parts(longer)
        if step_alone(longer):
            return longer
    return several


def judge_rounds(several: Sequence[Kept]) -> Verdict:
    """Return what comes of ranks that step by their own gradients."""
    rounds = rounds_of(several)
    if rounds.equal:
        return Verdict(compare_data(several), averages_later(rounds))
    left_out = never_equal_again(rounds)
    if left_out:
        return Verdict([*compare_data(several), *left_out], [])
    never = (
        "the parameters are not averaged later, either (steps: "
        f"{len(several[0].digests)}); where a round of local SGD or DiLoCo is "
        "longer, --steps has to be more than a round"
    )
    return Verdict([*compare_among(several), never], [])


def _configure(ranks: int) -> None:
    sim.configure(
        num_devices=ranks,
        accelerator="h100",
        link="nvlink4",
        hosts="per_device",
    )


def _as_asked(one: Kept, several: Sequence[Kept]) -> WithOne:
    """Compare with one rank that is said to have the same global batch."""
    one = with_own(one, several)
    steps = steps_compared(one, several)
    alarms = nothing_compared(one, "on one rank")
    if not alarms:
        alarms = compare_first(one, several)
    if not alarms:
        alarms = compare_with_one(one, several, steps)
        same = steps_with_same_examples(one, several)
        if alarms and same < steps:
            alarms.append(unseen(one, several, same))
    return WithOne(
        alarms,
        how="one rank has had the arguments of --one",
        missing="",
        steps=steps,
    )


def _with_batches_of(
    script: Script,
    several: Sequence[Kept],
    steps: int,
    files: FilesPutBack,
) -> WithOne:
    """Compare with one rank that gets the batches of all.

    If that is not the same global batch, compare with the script as it is.
    """
    try:
        tape = read_tapes(files.folder, len(several))
    except UnlikeBatchesError as error:
        tape, reason = None, f"{error}"
    else:
        reason = ""
    runs: list[tuple[Tape | None, str]] = [
        (None, "one rank has run the script as it is")
    ]
    if tape is not None:
        how = "one rank has had the batches that the ranks' loaders gave them"
        runs.insert(0, (tape, how))
    tried: list[WithOne] = []
    for played, how in runs:
        try:
            one = kept_of_one(
                script,
                steps=steps,
                several=several,
                files=files,
                tape=played,
                prints=False,
            )
        except RankError as error:
            tried.append(
                WithOne(
                    [], how=how, missing=f"one rank fails ({error})", steps=0
                )
            )
            continue
        tried.append(
            _as_far_as_same(one, several, how, is_played=played is not None)
        )
        if not tried[-1].missing:
            return tried[-1]
    best = max(tried, key=lambda one: one.steps)
    return best._replace(
        missing="; ".join(filter(None, [reason, best.missing]))
    )


def _as_far_as_same(
    one: Kept, several: Sequence[Kept], how: str, *, is_played: bool
) -> WithOne:
    """Compare with one rank in the steps in which it has the same examples."""
    one = with_own(one, several)
    steps = steps_compared(one, several)
    nothing = nothing_compared(one, "on one rank")
    nothing = nothing or compare_first(one, several)
    if nothing:
        return WithOne([], how=how, missing=nothing[0], steps=0)
    alarms = compare_with_one(one, several, steps)
    if not alarms:
        return WithOne([], how=how, missing="", steps=steps)
    if not is_played and not are_seen([one, *several]):
        missing = (
            "one rank has run the script as it is, and it is not known which "
            "examples its model has got, as it is given a class of the "
            "script's own; --one gives one rank the batch of all"
        )
        return WithOne([], how=how, missing=missing, steps=0)
    same = steps_with_same_examples(one, several)
    if same < steps:
        alarms = compare_with_one(one, several, same)
        missing = unseen(one, several, same)
        if is_played:
            missing += (
                "; it has had the batches of the ranks' loaders, so that the "
                "script makes other examples of them, as by noise that it "
                "draws for the model"
            )
        return WithOne(alarms, how=how, missing=missing, steps=same)
    if any(f.draws for rank in (one, *several) for f in rank.facts):
        missing = (
            "forward draws random numbers, besides those of dropout, and one "
            "rank draws others than the ranks"
        )
        return WithOne([], how=how, missing=missing, steps=0)
    if is_played and _is_scaled(one, several):
        missing = (
            f"the learning rate is {len(several)} times that of one rank, as "
            "it may be for a global batch that grows with the ranks; so steps "
            "are not compared, but the gradients of the first are"
        )
        alarms = [] if "learning rates of step 1" in alarms[0] else alarms
        return WithOne(alarms, how=how, missing=missing, steps=1)
    return WithOne(alarms, how=how, missing="", steps=steps)


def _is_scaled(one: Kept, several: Sequence[Kept]) -> bool:
    """Return whether learning rates grow as the number of ranks."""
    pairs = [
        (own, theirs)
        for a, b in zip(one.digests, several[0].digests)
        for own, theirs in zip(a.rates.values(), b.rates.values())
    ]
    return any(own for own, _ in pairs) and all(
        near_numbers(len(several) * own, theirs, relative=1e-6)
        for own, theirs in pairs
    )


def _said(
    compared: WithOne, several: Sequence[Kept], is_wrong: bool
) -> list[str]:
    """Return what agrees, and what was not compared."""
    ranks = len(several)
    counts = all_clear(several, compared.steps or len(several[0].digests))
    lines = []
    if not is_wrong:
        agree = f"{ranks} ranks agree with each other"
        if compared.steps:
            agree = (
                f"{ranks} ranks compute the gradients of one, and agree with "
                "each other"
            )
        lines.append(f"{agree} ({counts})")
    if compared.missing:
        what = f"after step {compared.steps}, they" * (compared.steps > 0)
        lines.append(
            f"{what or 'they'} are not compared with one rank: "
            f"{compared.missing}"
        )
    return lines


def _counted(several: Sequence[Kept]) -> str:
    steps = len(several[0].digests)
    return f"{steps} step" if steps == 1 else f"{steps} steps"


def _what_was_compared(
    compared: WithOne, several: Sequence[Kept], has_findings: bool
) -> list[str]:
    """Return what was compared, and with what."""
    buffers = len(several[0].facts[0].buffers)
    lines = [
        "compared: gradients before they are clipped, parameters, learning "
        f"rates, buffers that forward uses ({buffers}); dropout is left out"
    ]
    averaged = len(several[0].averaged)
    if averaged:
        lines[0] += (
            "; the optimizer averages gradients inside of its step "
            f"(parameters: {averaged}), so that those after it are compared "
            "to the last bit"
        )
    parts = several[0].parts
    if parts:
        lines[0] += (
            "; parameters that differ from the start, where layers send in "
            "forward, are taken for parts of larger ones and left out "
            f"({len(parts)}, first {parts[0]})"
        )
    if not compared.steps:
        return lines
    if averaged:
        lines[0] += (
            "; gradients of one rank are compared with the mean of the ranks'"
        )
    lines[0] += f"; {compared.how}"
    if any(facts.normalizes for facts in several[0].facts):
        lines[0] += (
            "; batch normalization is by the statistics of each rank's own "
            "examples, with one rank, too"
        )
    found = f"have found nothing in {_counted(several)}"
    if has_findings:
        found = "have found what is said above"
    if "loaders" in compared.how:
        lines.append(
            "what is wrong with the examples themselves, such as a missing "
            "sampler or another global batch, does not show in this; the "
            f"watchers of torchrun, which look for that, {found}"
        )
    return lines
