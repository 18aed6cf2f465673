"""This tree against another commit: two worker processes take turns."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from in_turns import Seconds, in_turns
from recorders.provenance import ROOT, git

from bench_parts.ratios import Formula, Ratio, added, over
from bench_parts.rows import CPU_TIME, Row

WORKER = Path(__file__).parent / "worker.py"
HERE = "this tree"
THERE = "the commit"
# The goals are of ratios over this commit.
GOALS_OVER = "e353e87"
# Part of the worker -> how it is called, and the goal.
REPEATED = {
    "x + x": ("x + x, 64 × 64", 0.45),
    "mm": ("mm, 64 × 64", 0.45),
    "resnet": ("a step of ResNet-18 on meta", 0.6),
}
ONCE = {
    "import": ("import dpkit, after torch", 0.7),
    "first": ("the first operation on a simulated device", 0.5),
}
LENET = "a step of LeNet on two simulated devices"
LENET_GOAL = 0.6


def rows(commit: str) -> Iterator[Row]:
    """Time this tree and a commit, part by part."""
    with tree_of(commit) as tree:
        trees = {HERE: ROOT, THERE: tree}
        for part, (title, goal) in REPEATED.items():
            seconds = _repeated({name: (t, part) for name, t in trees.items()})
            yield _row(title, commit, seconds, over(HERE, THERE), goal)
        yield _lenet(commit, trees)
        for part, (title, goal) in ONCE.items():
            seconds = in_turns(
                {name: partial(_once, t, part) for name, t in trees.items()}
            )
            yield _row(title, commit, seconds, over(HERE, THERE), goal)


def _lenet(commit: str, trees: dict[str, Path]) -> Row:
    """Time what simulated devices add to a step on the CPU."""
    plain = f"{HERE}, plain CPU"
    ways = {plain: (trees[HERE], "lenet-cpu")}
    ways |= {name: (tree, "lenet-sim") for name, tree in trees.items()}
    overhead = added(HERE, THERE, plain)
    return _row(LENET, commit, _repeated(ways), overhead, LENET_GOAL)


def _row(
    title: str, commit: str, seconds: Seconds, formula: Formula, goal: float
) -> Row:
    same = _full_name(commit) == _full_name(GOALS_OVER)
    what = f"this tree over {commit}"
    ratio = Ratio(what, formula, goal) if same else Ratio(what, formula)
    return Row(title, CPU_TIME, seconds, [ratio])


@contextmanager
def tree_of(commit: str) -> Iterator[Path]:
    """Give a temporary folder with dpkit as it is in a commit."""
    name = _full_name(commit)
    if not name:
        sys.exit(f"there is no such commit here (commit: {commit!r})")
    with tempfile.TemporaryDirectory() as folder:
        pack = ["git", "archive", name]
        unpack = ["tar", "-x", "-C", folder]
        packed = subprocess.run(
            [*pack, "dpkit"], cwd=ROOT, stdout=subprocess.PIPE, check=True
        )
        subprocess.run(unpack, input=packed.stdout, check=True)
        yield Path(folder).resolve()


class Worker:
    """A process with the dpkit of one tree, and one part of it to time."""

    def __init__(self, tree: Path, part: str) -> None:
        self._part = part
        path = [str(tree), os.environ.get("PYTHONPATH", "")]
        env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, path))}
        # In the runs to warm up dpkit is compiled, in both trees.
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        self._process = subprocess.Popen(
            [sys.executable, "-P", WORKER, part],
            env=env,
            cwd=tree,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()  # the end of its input is its end
        if self._process.returncode:
            raise RuntimeError(f"a worker failed (part: {self._part})")

    def seconds(self) -> float:
        """Time the part; return the CPU seconds of a call."""
        given = self._process.stdin
        said = self._process.stdout
        assert given is not None
        assert said is not None
        given.write("\n")
        given.flush()
        return float(said.readline() or "nan")


def _repeated(ways: dict[str, tuple[Path, str]]) -> Seconds:
    """Time a part of each of some trees, in a worker of each."""
    with ExitStack() as stack:
        workers = {
            name: stack.enter_context(Worker(tree, part))
            for name, (tree, part) in ways.items()
        }
        return in_turns({name: w.seconds for name, w in workers.items()})


def _once(tree: Path, part: str) -> float:
    """Time what a process can do only once."""
    with Worker(tree, part) as worker:
        return worker.seconds()


def _full_name(commit: str) -> str:
    """Return the whole name of a commit; nothing if there is none."""
    return git("rev-parse", "--verify", f"{commit}^{{commit}}")
