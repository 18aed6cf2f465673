"""Measure speed, as ratios of things that are timed in turns in one run.

Usage: python scripts/bench.py [--against COMMIT] [--record] [ROW …]

Each way has the least, the median and the largest of several repetitions, and
each ratio its median over them, with the lowest and the highest. What was
measured last on this CPU stands behind it; `--record` writes the new ratios
in its place. `--against` compares this tree with another commit, in place of
the rows; names choose some rows.
"""

import argparse
import sys
from collections.abc import Callable, Iterable
from datetime import date

import torch
from bench_parts import (
    collectives,
    commands,
    commits,
    operations,
    ranks,
    schedules,
)
from bench_parts.committed import Committed
from bench_parts.rows import Row
from recorders.provenance import git

from dpkit.calibration import cpu_name

ROWS: dict[str, Callable[[], Row]] = {
    "operation": operations.operation,
    "step": operations.step,
    "reading": operations.reading,
    "pipeline": schedules.pipeline,
    "replay": schedules.replayed,
    "allreduce": collectives.in_one_thread,
    "allreduce-threads": collectives.in_all_threads,
    "processes": ranks.processes,
    "ranks": ranks.small_allreduces,
    "ddp": ranks.steps,
    "script": commands.smallest_script,
}


def main(*arguments: str) -> int:
    """Time and show rows; return what the shell gets."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", nargs="*", default=[], metavar="ROW")
    parser.add_argument("--against", metavar="COMMIT")
    parser.add_argument("--record", action="store_true")
    given = parser.parse_args(arguments)
    unknown = set(given.rows) - set(ROWS)
    if unknown:
        parser.error(f"unknown rows (rows: {unknown}, known: {list(ROWS)})")
    machine = f"{cpu_name()}, {torch.get_num_threads()} threads"
    committed = Committed(machine)
    print(f"{machine}; torch {torch.__version__}")
    print("  least, median, largest; ratio to the first line, by its median")
    for row in _rows(given.rows, given.against):
        row.show(committed)
    if given.record:
        commit = git("describe", "--always", "--dirty")
        committed.write(
            commit=commit,
            date=date.today().isoformat(),
            torch=torch.__version__,
        )
    return 0


def _rows(names: list[str], against: str | None) -> Iterable[Row]:
    if against:
        return commits.rows(against)
    return (ROWS[name]() for name in names or ROWS)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
