"""Run on the GPUs what only they can show; write one file to attach.

Usage: python scripts/gpu_report.py

Within ten minutes on one GPU. What was done before is not run again, so a
call that was killed, or whose time was up, goes on with the next one. The
report is written after each part. `--stand-in 2` rehearses on a machine
without a GPU, as if it had two.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path
from threading import Lock
from typing import Any

from gpu_report_parts.limited import end_all, run
from gpu_report_parts.plan import LIMIT, ROOT, SLOWER, Part, plan, seeing
from gpu_report_parts.records import CUT, FAILED, LATE, PASSED, Records, digest
from gpu_report_parts.text import report

FACTS_SECONDS = 60
# A part that could only be begun is left for the next call.
LEAST_SECONDS = 10


def environment(stand_in: int) -> dict[str, str]:
    """Return the environment of the parts: what is there is used."""
    path = [str(ROOT / folder) for folder in ("", "book", "scripts")]
    path.append(os.environ.get("PYTHONPATH", ""))
    found = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
        "PYTHONUNBUFFERED": "1",
        "TQDM_DISABLE": "1",
    }
    found.pop("DPKIT_DEVICES", None)
    # Others may be at work on the CPU: threads that wait for cores spin.
    rehearsed = {"DPKIT_DEVICES": "cpu", "OMP_NUM_THREADS": "1"}
    return found | (rehearsed if stand_in else {})


def read_facts(stand_in: int) -> dict[str, Any]:
    """Ask another Python what the machine has: a driver may hang."""
    done = subprocess.run(
        seeing(stand_in, "-m recorders.provenance", "make gpu-report"),
        capture_output=True,
        text=True,
        env=environment(stand_in),
        cwd=ROOT,
        timeout=FACTS_SECONDS,
    )
    if done.returncode:
        raise RuntimeError(f"torch cannot be asked:\n{done.stderr}")
    facts: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return facts


class Call:
    """One call: it runs the parts that are left, until its time is up.

    Args:
        facts: What the machine has.
        folder: Where the parts leave what they do; the report lies next to it.
        stand_in: How many devices stand in for GPUs.
        end: When all of it has to be over, by ``time.monotonic``.
    """

    def __init__(
        self,
        facts: Mapping[str, Any],
        folder: Path,
        stand_in: int,
        end: float,
    ) -> None:
        machine = json.dumps([facts["gpus"], facts["torch"]])
        self.parts = plan(folder, len(facts["gpus"]), stand_in)
        self.records = Records(folder, machine, digest())
        self.path = folder.with_suffix(".md")
        self._facts = facts
        self._stand_in = stand_in
        self._end = end
        self._mark = f"{os.getpid()}-"
        self._lock = Lock()

    def run(self, parts: list[Part], lanes: int) -> None:
        """Run the parts, and those that may, ``lanes`` at a time."""
        self.write()
        for alone, group in groupby(parts, lambda part: part.alone):
            with ThreadPoolExecutor(1 if alone else lanes) as pool:
                try:
                    list(pool.map(self._run, group))
                except BaseException:  # Ctrl-C
                    self._end = 0.0  # none is begun any more
                    end_all(self._mark)
                    raise

    def write(self) -> None:
        """Write the report of what is recorded; in one step."""
        text = report(self._facts, self.parts, self.records, self._stand_in)
        draft = self.path.with_suffix(".part")
        draft.write_text(text, encoding="utf-8")
        draft.replace(self.path)

    def _run(self, part: Part) -> None:
        left = self._end - time.monotonic()
        if left < LEAST_SECONDS:
            return
        limit = min(part.limit, left)
        print(f"{part.name}: begins (at most {limit:.0f} s)", flush=True)
        # Some names begin with another's, but none has a slash.
        log = self.records.log(part)
        mark = f"{self._mark}{part.name}/"
        env = environment(self._stand_in)
        ended = run(part.command, log, limit, mark, env, ROOT)
        outcome = PASSED if ended.status == 0 else FAILED
        if ended.status is None:
            outcome = LATE if limit == part.limit else CUT
        if not self._end:
            outcome = CUT
        print(f"{part.name}: {outcome} ({ended.seconds:.0f} s)", flush=True)
        with self._lock:
            self.records.save(part, outcome, ended.seconds)
            self.write()


def main() -> int:
    """Run what is left; return whether all has passed."""
    options = parse()
    end = time.monotonic() + options.limit
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        facts = read_facts(options.stand_in)
    except KeyboardInterrupt:
        return 1
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        print(error, file=sys.stderr)
        return 1
    num_gpus = len(facts["gpus"])
    if not num_gpus:
        print("there is no GPU; to rehearse: make gpu-report STAND_IN=1")
        return 1
    rehearsal = f"-rehearsal-{options.stand_in}" if options.stand_in else ""
    folder = (
        options.folder.resolve() / f"gpu-report-{facts['date']}{rehearsal}"
    )
    call = Call(facts, folder, options.stand_in, end)
    todo = call.records.left(call.parts, num_gpus, options.again)
    try:
        call.run(todo, lanes=max(1, min(8, (os.cpu_count() or 1) // 2)))
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
    left = call.records.left(call.parts, num_gpus)
    failed = call.records.left(call.parts, num_gpus, ["failed"])
    print(f"written: {call.path}")
    print(f"not passed: {len(failed) - len(left)}, not run: {len(left)}")
    if left:
        print("the same command runs what is left")
    return 1 if failed else 0


def parse() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add = parser.add_argument
    add("--stand-in", type=int, default=0, help="rehearse so many GPUs")
    add("--again", nargs="+", default=[], help="parts, failed, or all")
    add("--limit", type=float, help=f"seconds in all ({LIMIT})")
    add("--folder", type=Path, default=ROOT / "_build")
    options = parser.parse_args()
    parts = {part.name for part in plan(Path(), 2)}
    unknown = set(options.again) - parts - {"failed", "all"}
    if unknown:
        parser.error(
            f"unknown parts (--again: {', '.join(sorted(unknown))}, known: "
            f"failed, all, {', '.join(sorted(parts))})"
        )
    if options.limit is None:
        options.limit = LIMIT * (SLOWER if options.stand_in else 1)
    return options


if __name__ == "__main__":
    sys.exit(main())
