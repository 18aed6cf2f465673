"""Run one script, and read what the report says."""

import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from recorders.public.checkout import lay_out
from recorders.public.compare import largest_difference
from recorders.public.said import alarms
from recorders.public.table import HERE, PublicScript, fill

LIMIT = 1800  # seconds on the wall for one run, so that none is cut by load
WIDEST = 160  # characters of what a failed run says
ROOT = HERE.parent.parent.parent
WATCHED = str(HERE / "watched.py")
STEP = re.compile(r"^A step of the optimizer.*\n +(.*)$", re.MULTILINE)
PEAK = re.compile(r"^Memory of tensors.*\n.*\n +\d+ +(\S+ \S+)", re.MULTILINE)
FAILED = re.compile(
    r"torchrun: (rank \d+ failed.*|.*deadlock.*|no rank.*)$", re.MULTILINE
)


@dataclass
class Ended:
    """How a process has ended."""

    status: int | None  # None: stopped at the limit
    output: str
    cpu_seconds: float
    wall_seconds: float


def run_to_end(command: list[str], **settings: Any) -> Ended:
    """Run a program, for LIMIT seconds at most."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT,
            start_new_session=True, **settings,
        )  # fmt: skip
        try:
            status: int | None = process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.wait()
            status = None
        wall = time.perf_counter() - start
        output.seek(0)
        text = output.read()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Ended(status, text, round(cpu, 1), round(wall, 1))


class Runner:
    """Runs scripts whose repositories are in a folder.

    Args:
        repositories: A folder with a checkout of each, by its last name,
            and with ``made`` and ``stand_ins`` (see ``made_up``).
        logs: A folder for what the runs print.
    """

    def __init__(self, repositories: Path, logs: Path) -> None:
        self._repositories = repositories
        self._logs = logs

    def _places(self, script: PublicScript) -> dict[str, str]:
        written = self._logs / f"{script.name}.written"
        written.mkdir(parents=True, exist_ok=True)
        made = self._repositories / "made"
        return {"made": str(made), "temporary": str(written)}

    def _folder(self, script: PublicScript) -> Path:
        if script.repository.startswith("package:"):
            return self._logs
        if script.at:
            return self._repositories / "at" / script.name / script.folder
        return self._checkout(script) / script.folder

    def log(self, script: PublicScript, kind: str = "log") -> Path:
        """Return the file with what a run has printed."""
        return self._logs / f"{script.name}.{kind}"

    def _checkout(self, script: PublicScript) -> Path:
        return self._repositories / script.repository.rpartition("/")[2]

    def lay_out(self, script: PublicScript) -> None:
        """Lay out the files of the script's commit, if it names one."""
        if script.at:
            lay_out(
                self._checkout(script),
                self._repositories / "at" / script.name,
                script,
                self._places(script)["made"],
            )

    def _stand_in(self, name: str) -> Path:
        """Return a folder of packages: here, or installed for a script."""
        own = HERE / name
        return own if own.exists() else self._repositories / "stand_ins" / name

    def _environment(self, script: PublicScript) -> dict[str, str]:
        places = self._places(script)
        paths = [str(self._stand_in(name)) for name in script.stand_ins]
        own = {k: fill(v, places) for k, v in script.variables.items()}
        return {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), *paths]),
            "OMP_NUM_THREADS": "1",
            "MKL_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
            "WANDB_MODE": "disabled",
            "TORCH_HOME": str(self._repositories / "made" / "torch"),
            "CUDA_VISIBLE_DEVICES": "",
            "TMPDIR": places["temporary"],
            **own,
        }

    def _program(self, script: PublicScript, sums: Path | None) -> list[str]:
        """Return the script and its arguments, or the watched script."""
        program = ["-m"] * script.module + [script.script]
        arguments = script.filled(script.arguments, self._places(script))
        watching = []
        if sums is not None:
            watching += ["--write", str(sums)]
        if script.old_names:
            watching += ["--before", str(HERE / "old_names.py")]
        if watching:
            return [WATCHED, *watching, *program, *arguments]
        return [*program, *arguments]

    def simulate(
        self, script: PublicScript, sums: Path | None = None
    ) -> Ended:
        """Run a script on simulated GPUs."""
        options = [*script.options]
        command = "run"  # it starts its ranks itself
        if "--gpus" not in options:
            command = "torchrun"
            options += ["--nproc-per-node", str(script.ranks)]
        if script.steps > 0:
            # The step that is the last ends the rank before it is written.
            steps = script.steps + (sums is not None)
            options += ["--steps", str(steps)]
        arguments = [*options, *self._program(script, sums)]
        return self._run(script, ["-m", "dpkit", command, *arguments], "log")

    def check(self, script: PublicScript, one: str) -> Ended:
        """Compare one rank of a script with several.

        Args:
            script: The script.
            one: What one rank is given besides.
        """
        options = [f"--ranks={script.ranks}", f"--one={one}"]
        arguments = [*options, *self._program(script, None)]
        return self._run(script, ["-m", "dpkit", "check", *arguments], "check")

    def run_in_processes(self, script: PublicScript, sums: Path) -> Ended:
        """Run a script in real processes, with gloo on the CPU."""
        start = [
            "-m",
            "torch.distributed.run",
            "--nproc-per-node",
            str(script.ranks),
            "--master-port",
            "29577",
        ]
        steps = ["--steps", str(script.steps)] if script.steps > 0 else []
        arguments = self._program(script, sums)[1:]
        gloo = ["--", str(HERE / "gloo.py"), *steps, *arguments]
        return self._run(script, [*start, *gloo], "gloo")

    def _run(
        self, script: PublicScript, arguments: list[str], log: str
    ) -> Ended:
        for name in script.removed:
            old = self._folder(script) / name
            shutil.rmtree(old) if old.is_dir() else old.unlink(True)
        ended = run_to_end(
            [sys.executable, *arguments],
            cwd=self._folder(script),
            env=self._environment(script),
        )
        self.log(script, log).write_text(ended.output)
        return ended

    def _without_places(self, ended: Ended) -> Ended:
        """Return how a process has ended, without the folder of checkouts."""
        output = ended.output.replace(f"{self._repositories}/", "")
        return replace(ended, output=output)

    def record(self, script: PublicScript) -> dict[str, Any]:
        """Run a script, and return what there is to say."""
        self.lay_out(script)
        ended = self.simulate(script)
        step, peak = STEP.search(ended.output), PEAK.search(ended.output)
        row = {
            "name": script.name,
            "repository": script.repository,
            "commit": self.commit(script),
            "script": f"{script.folder}/{script.script}".removeprefix("./"),
            "ranks": script.ranks,
            "options": script.options,
            "steps": script.steps,
            "made": script.made,
            "blind": script.blind,
            "ran": ended.status == 0,
            "reason": script.reason,
            "failed": failure(self._without_places(ended)),
            "step": step and step[1],
            "peak": peak and peak[1],
            "cpu_seconds": ended.cpu_seconds,
            "wall_seconds": ended.wall_seconds,
        }
        if script.compared and ended.status == 0:
            row["compared"] = self.compare(script)
        # check has no options of torchrun, and compares steps that train.
        if row["step"] and script.ranks > 1 and not script.options:
            row["check"] = self.checked(script)
        return row

    def checked(self, script: PublicScript) -> dict[str, Any]:
        """Run check on a script as it is, and return what it says."""
        ended = self.check(script, "")
        said = alarms(ended.output.replace(f"{self._folder(script)}/", ""))
        if ended.status != 0:
            said = said or [failure(ended)]
        return {"said": said, "cpu_seconds": ended.cpu_seconds}

    def compare(self, script: PublicScript) -> dict[str, Any]:
        """Run a script on both, and compare what its steps leave."""
        with tempfile.TemporaryDirectory() as name:
            ours, theirs = Path(name) / "simulated", Path(name) / "real"
            self.simulate(script, ours)
            real = self.run_in_processes(script, theirs)
            found = largest_difference(ours, theirs)
        return {
            **found,
            "cpu_seconds": real.cpu_seconds,
            "failed": "" if found["steps"] else failure(real),
        }

    def commit(self, script: PublicScript) -> str:
        """Return the commit of a checkout, or the version of a package."""
        if script.repository.startswith("package:"):
            from importlib.metadata import version

            return version(script.repository.removeprefix("package:"))
        command = ["git", "rev-parse", script.at or "HEAD"]
        folder = self._checkout(script)
        found = subprocess.run(command, cwd=folder, capture_output=True)
        return found.stdout.decode().strip()[:12]


def failure(ended: Ended) -> str:
    """Return what the last lines say of a run that has failed."""
    if ended.status is None:
        return f"stopped after {LIMIT} s"
    if ended.status == 0:
        return ""
    found = FAILED.findall(ended.output)
    said = str(found[0] if found else ended.output.strip()[-200:])
    return said[:WIDEST]
