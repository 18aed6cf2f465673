"""The parts of a rehearsal: what a GPU owner runs, as a list of programs."""

import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PYTEST = (
    sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider",
    "--color=no",
)  # fmt: skip
NBVAL = (
    "--nbval", "--nbval-current-env", "--nbval-kernel-name=python3",
    "--nbval-kernel-startup-timeout=1200",
)  # fmt: skip
# What a double has no numbers for: how fast GPUs are. And what it lacks: CUDA
# graphs.
NOT_DOUBLED = (
    "kit/test_calibration.py::test_a_gpu_is_measured",
    "book/test_resident.py::test_graphed_steps_are_the_same[cuda]",
)
# The tests of where dpkit meets torch, with the faults that they hold.
EDGE = (
    "sim/test_mixed_backends.py",
    "kit/test_edge_of_cuda.py",
    "sim/test_pinned.py",
    "sim/test_accelerator.py",
    "book/test_device_assignment.py",
    "book/test_torchrun.py",
    "site/tools/test_environments.py",
)
# For a short rehearsal: each chapter, and on how many GPUs.
SHORT_CHAPTERS = (
    ("three-ways", 2),
    ("data-parallelism-concise", 2),
    ("network-partitioning", 4),
)


@dataclass(frozen=True)
class Part:
    """A program to run on the double.

    Attributes:
        name: What it is called.
        command: The program and its arguments.
        num_gpus: How many GPUs it sees; 0: it runs without the double.
        limit: The seconds of a core that it may take.
    """

    name: str
    command: tuple[str, ...]
    num_gpus: int
    limit: float = 900.0


def short_rehearsal() -> list[Part]:
    """Return what is run on every commit: the edge, and three chapters."""
    tests = [f"tests/{name}" for name in EDGE]
    return [
        Part("edge", (*PYTEST, "-m", "cuda", *tests), 2),
        graders(),
        *(chapter(name, k) for name, k in SHORT_CHAPTERS),
    ]


def whole_rehearsal(num_gpus: int, folder: Path) -> list[Part]:
    """Return all that a GPU owner runs, the longest first.

    Args:
        num_gpus: How many GPUs there are.
        folder: Where programs write their files.
    """
    without = [f"--deselect=tests/{name}" for name in NOT_DOUBLED]
    tests = (*PYTEST, "-m", "cuda", *without, "tests")
    notebooks = sorted((ROOT / "book").glob("*.ipynb"))
    return [
        Part("cuda-tests", tests, num_gpus, 2400),
        *(chapter(path.stem, num_gpus) for path in notebooks),
        *readme_commands(num_gpus),
        calibrate(folder / "double.json", num_gpus),
        report(folder, num_gpus),
        graders(),
        *jobs(num_gpus),
        python("evaluate", num_gpus, "-m", "rehearsal.evaluate"),
    ]


def python(name: str, num_gpus: int, *arguments: str) -> Part:
    """Return a program of Python."""
    return Part(name, (sys.executable, *arguments), num_gpus)


def chapter(name: str, num_gpus: int) -> Part:
    """Return a chapter, whose cells are compared with the stored ones.

    It ends with how many of its cells have worked on GPUs.
    """
    plugins = ("-p", "rehearsal.printed", "-p", "tests.running.gpus_used")
    command = (*PYTEST, *plugins, *NBVAL, f"book/{name}.ipynb")
    return Part(f"{name} on {num_gpus}", command, num_gpus)


def graders() -> Part:
    """Return the graders of exercises, their devices held on one GPU."""
    return python("graders", 1, "-m", "rehearsal.graders")


def calibrate(file: Path, num_gpus: int) -> Part:
    """Return the measurement of a GPU, of small things."""
    command = f"-m rehearsal.calibrate --device cuda:0 --force --output {file}"
    return python("calibrate", num_gpus, *shlex.split(command))


def report(folder: Path, num_gpus: int) -> Part:
    """Return the report of a GPU; it has time for its first parts alone."""
    command = f"-m rehearsal.report --limit 120 --folder {folder}"
    return python("gpu-report", num_gpus, *shlex.split(command))


def jobs(num_gpus: int) -> list[Part]:
    """Return the training job, as one process and as one for each GPU."""
    train = "-m dpbook train --model linear --max-steps 20"
    torchrun = "-m torch.distributed.run --standalone --nproc-per-node"
    return [
        python("train", num_gpus, *train.split()),
        python(
            "train under torchrun",
            num_gpus,
            *f"{torchrun} {num_gpus} {train}".split(),
        ),
    ]


def readme_commands(num_gpus: int) -> list[Part]:
    """Return the programs of a GPU owner's first hour."""
    text = (ROOT / "book/gpus.md").read_text("utf-8")
    section = text.split("\n## ")[0]
    commands = re.findall(r"(?m)^\.venv/bin/python (.*?)(?: +#.*)?$", section)
    return [
        python(f"first hour: {command}", num_gpus, *shlex.split(command))
        for command in dict.fromkeys(commands)
    ]
