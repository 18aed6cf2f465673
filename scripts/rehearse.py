"""Rehearse what GPUs run, on the double of CUDA; fail where a GPU would.

Usage: rehearse.py GPUS | short

``tests/cuda_double/README.md`` says what the double can show and what not.
Each part is a program that sees so many GPUs. It fails if it ends with an
error, or if the double has found memory that is used in no order, or freed
too early. The double rounds as a GPU might, and not as the CPU does, unless
``CUDA_DOUBLE_ROUNDING`` is empty.
"""

import argparse
import os
import signal
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from gpu_report_parts import limited
from rehearsal.parts import ROOT, Part, short_rehearsal, whole_rehearsal
from tqdm import tqdm

LOGS = ROOT / "_build/rehearsal"
MARK = f"{os.getpid()}-"  # of all that this process starts
AT_ONCE = os.cpu_count() or 1  # each part has one thread


@dataclass(frozen=True)
class Outcome:
    """How a part ended."""

    part: Part
    fault: str  # "" if there is none
    seconds: float
    last_line: str


def log_of(part: Part) -> Path:
    """Return the file of what a part prints."""
    name = "".join(c if c.isalnum() else "-" for c in part.name)[:60]
    return LOGS / f"{name}.log"


def run(part: Part) -> Outcome:
    """Run a part on the double; its output goes to a file."""
    log = log_of(part)
    found = log.with_suffix(".found")
    found.unlink(missing_ok=True)
    double = ROOT / "tests/cuda_double/run"
    path = [str(ROOT / folder) for folder in ("", "book", "scripts")]
    # Other last bits than the CPU's, unless the caller asks for others still.
    environment = {"CUDA_DOUBLE_ROUNDING": "1"} | os.environ
    environment |= {
        "CUDA_DOUBLE_LOG": str(found),
        "OMP_NUM_THREADS": "1",
        "PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(path),
        "TQDM_DISABLE": "1",
    }
    doubled = (str(double), str(part.num_gpus)) if part.num_gpus else ()
    command = (*doubled, *part.command)
    mark = f"{MARK}{log.stem}/"
    limit = limited.CpuLimit(part.limit)
    ended = limited.run(command, log, limit, mark, environment, ROOT)
    fault = f"status {ended.status}" if ended.status else ""
    if ended.status is None:
        fault = (
            f"cut: it has used more than {limit.seconds:.0f} s of the cores, "
            f"or next to nothing for {limit.idle_seconds:.0f} s"
        )
    if found.exists() and (faults := found.read_text("utf-8").splitlines()):
        first = f"found: {len(faults)}, the first: {faults[0]}"
        fault = f"{fault} {first}".strip()
    lines = log.read_text("utf-8", errors="replace").splitlines() or [""]
    return Outcome(part, fault, ended.seconds, lines[-1])


def main() -> int:
    """Run all parts; print how each ended, and return whether all passed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("gpus", help="a number, or: short")
    parser.add_argument("--only", default="", help="parts with this name")
    options = parser.parse_args()
    LOGS.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory() as folder:
        if options.gpus == "short":
            parts = short_rehearsal()
        else:
            parts = whole_rehearsal(int(options.gpus), Path(folder))
        parts = [part for part in parts if options.only in part.name]
        failed = rehearse(parts)
    print(f"parts: {len(parts)}, failed: {failed}; logs: {LOGS}")
    return 1 if failed else 0


def rehearse(parts: list[Part]) -> int:
    """Run parts, some at once; return how many failed."""
    failed = 0
    with ThreadPoolExecutor(AT_ONCE) as pool:
        running = [pool.submit(run, part) for part in parts]
        ended = as_completed(running)
        try:
            for future in tqdm(ended, total=len(parts), disable=None):
                failed += bool(future.result().fault)
                tqdm.write(described(future.result()))
        except BaseException:  # Ctrl-C: none is begun, all that run are ended
            pool.shutdown(wait=False, cancel_futures=True)
            limited.end_all(MARK)
            raise
    return failed


def described(outcome: Outcome) -> str:
    """Return how a part ended, in a line."""
    state = f"FAILED ({outcome.fault})" if outcome.fault else "passed"
    return (
        f"{outcome.part.name}: {state}, {outcome.seconds:.0f} s | "
        f"{outcome.last_line[:100]}"
    )


if __name__ == "__main__":
    sys.exit(main())
