"""The parts of the report, most valuable first."""

import sys
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PARTS = "gpu_report_parts"
# The folders that have tests of GPUs.
TESTS = tuple(ROOT / "tests" / x for x in ("sim", "kit", "runs", "book"))
# What a rehearsal takes longer, on the CPU.
SLOWER = 4
# Seconds for all parts of a call: ten minutes, less what surrounds them.
LIMIT = 570
PYTHON = (sys.executable,)
PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "--color=no")
NBVAL = (
    "--nbval-lax", "--nbval-current-env", "--nbval-kernel-name=python3",
    "--nbval-kernel-startup-timeout=1200",
)  # fmt: skip
# What two GPUs can show and one cannot: the checks of two_gpus.
PAIRS = ("data-parallel", "wrapper", "evaluation", "collectives", "ddp")


@dataclass(frozen=True)
class Part:
    """A program to run.

    Attributes:
        name: What it is called.
        command: The program and what it is given.
        limit: The seconds that it may take.
        num_gpus: How many GPUs it needs.
        alone: Whether nothing may run at the same time.
        results: The files that it writes.
    """

    name: str
    command: tuple[str, ...]
    limit: float
    num_gpus: int = 1
    alone: bool = True
    results: tuple[Path, ...] = ()


def plan(folder: Path, num_gpus: int, stand_in: int = 0) -> list[Part]:
    """Return all parts, most valuable first.

    Args:
        folder: Where results are written.
        num_gpus: How many GPUs there are; a rehearsal's, how many stand in.
        stand_in: How many devices stand in for GPUs; 0: none does.
    """
    # Where the tests are cut, the log names those that were run: one v takes
    # back the q of PYTEST.
    # None of the tests of the site needs a GPU, and a machine with one may
    # lack what they import.
    several = ("-vv", "-n", "8", "--dist", "loadscope", "-m", "cuda")
    tests = (*PYTEST, *several, *map(str, TESTS))
    # Whether a GPU has been measured, that part asks the machine as it is.
    comparisons = seeing(0, f"-m {PARTS}.comparisons")
    steps = _record("gpu_steps", 60, folder)
    operators = _record("gpu_operators", 200, folder)
    parts = [
        Part("machine", seeing(stand_in, f"-m {PARTS}.machine"), 30),
        Part("cuda-tests", (*PYTHON, *tests), 150 if num_gpus < 2 else 300),
        Part("comparisons", comparisons, 100),
        _resident(folder / "resident_epoch.json", stand_in),
        *(
            Part(name, seeing(stand_in, f"-m {PARTS}.two_gpus {name}"), 60, 2)
            for name in PAIRS
        ),
        *map(_chapter, sorted(ROOT.glob("book/*.ipynb"))),
        _calibrate(folder / "gpu.json", stand_in),
        *([] if stand_in else [steps, operators]),
    ]
    slower = SLOWER if stand_in else 1
    return [replace(part, limit=slower * part.limit) for part in parts]


def seeing(stand_in: int, program: str, *arguments: str) -> tuple[str, ...]:
    """Return a program of dpkit's, which asks for the GPUs of this machine."""
    replaced = ("-m", f"{PARTS}.stand_in", str(stand_in)) if stand_in else ()
    return (*PYTHON, *replaced, *program.split(), *arguments)


def _calibrate(file: Path, stand_in: int) -> Part:
    # What is far off is written too: of a GPU it is news.
    options = f"--force --device {'cpu' if stand_in else 'cuda:0'} --output"
    command = seeing(stand_in, f"-m dpkit calibrate {options}", str(file))
    return Part("calibrate", command, 90, results=(file,))


def _record(name: str, limit: float, folder: Path) -> Part:
    # Whole models are too large to be rehearsed on a CPU.
    file = folder / f"{name}.json"
    command = seeing(0, f"scripts/record.py {name}", str(file))
    return Part(name, command, limit, results=(file,))


def _resident(file: Path, stand_in: int) -> Part:
    script = "scripts/record.py resident"
    epochs = ("2",) if stand_in else ()  # of which each takes long
    command = seeing(stand_in, script, str(file), *epochs)
    return Part("resident", command, 40, results=(file,))


def _chapter(path: Path) -> Part:
    command = (*PYTHON, *PYTEST, *NBVAL, str(path))
    return Part(f"chapter-{path.stem}", command, 300, alone=False)
