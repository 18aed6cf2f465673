"""The report: what is recorded so far, as Markdown with folded outputs."""

import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from gpu_report_parts.plan import ROOT, Part
from gpu_report_parts.records import PASSED, Records

COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
NUM_LINES = 400
NUM_COLUMNS = 110
FENCE = "`" * 5


def report(
    facts: Mapping[str, Any],
    parts: Sequence[Part],
    records: Records,
    stand_in: int = 0,
) -> str:
    """Return the report of what is recorded.

    Args:
        facts: What the machine has, by name.
        parts: All parts, in order.
        records: What they have done.
        stand_in: How many devices stood in for GPUs; 0: none did.
    """
    num_gpus = len(facts["gpus"])
    blocks = [
        title(facts, stand_in),
        table(("", ""), [(name, _show(facts[name])) for name in facts]),
        table(
            ("part", "outcome", "seconds", "its last line"),
            [_row(part, records, num_gpus) for part in parts],
        ),
        *(_folded(part, records) for part in parts if records.find(part)),
    ]
    return "\n\n".join(blocks) + "\n"


def title(facts: Mapping[str, Any], stand_in: int) -> str:
    """Return the first line, which tells a rehearsal from a report."""
    if stand_in:
        return (
            "# A rehearsal on the CPU: no GPU was there (devices that stood "
            f"in: {stand_in}, {facts['date']})"
        )
    return f"# GPU report: {_show(facts['gpus'])}, {facts['date']}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table of Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def plain(output: str) -> str:
    """Return what a terminal would show, without colours and our folder."""
    output = COLOURS.sub("", output).replace(f"{ROOT}/", "")
    lines = [line.rpartition("\r")[2] for line in output.split("\n")]
    return "\n".join(line.rstrip() for line in lines).strip("\n")


def _show(fact: Any) -> str:
    """Return a fact in words; equal ones in a list are counted."""
    if not isinstance(fact, list):
        return "unknown" if fact in ("", None) else str(fact)
    counted = [(name, len(list(same))) for name, same in groupby(fact)]
    return ", ".join(f"{count} × {name}" for name, count in counted) or "none"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _row(part: Part, records: Records, num_gpus: int) -> Sequence[str]:
    record = records.find(part)
    if record is None:
        few = f"needs {part.num_gpus} GPUs (there: {num_gpus})"
        why = few if part.num_gpus > num_gpus else "not run yet"
        return part.name, why, "", ""
    outcome = record.outcome
    if record.code != records.code:
        outcome += f", with code that has changed since ({record.code})"
    lines = _output(part, records).splitlines() or [""]
    seconds = f"{record.seconds:.0f}"
    return part.name, outcome, seconds, f"`{lines[-1][:NUM_COLUMNS]}`"


def _output(part: Part, records: Records) -> str:
    log = records.log(part)
    if not log.exists():
        return ""
    return plain(log.read_bytes().decode("utf-8", "replace"))


def _folded(part: Part, records: Records) -> str:
    """Return what a part said and wrote, folded if it passed."""
    record = records.find(part)
    assert record
    lines = _output(part, records).splitlines()
    left_out = len(lines) - NUM_LINES
    if left_out > 0:
        more = f"… {left_out} lines more in {part.name}.log"
        lines = [more, *lines[-NUM_LINES:]]
    texts = ["\n".join(lines)]
    texts += [p.read_text("utf-8") for p in part.results if p.exists()]
    is_open = "" if record.outcome == PASSED else " open"
    head = f"{part.name}: {record.outcome}, {record.seconds:.0f} s"
    blocks = [f"<details{is_open}><summary>{head}</summary>"]
    blocks += [f"{FENCE}text\n{text.rstrip()}\n{FENCE}" for text in texts]
    return "\n\n".join([*blocks, "</details>"])
