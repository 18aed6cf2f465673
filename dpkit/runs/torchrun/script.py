"""Run a script in the process of a rank, as torchrun would."""

import os
import runpy
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from dpkit.processes import ending_children, exit_status
from dpkit.runs.ranks.error_words import WordsError

PORT = 29500  # that of torchrun; nobody listens there


class Script(NamedTuple):
    """What is to be run, as after ``python`` on a command line."""

    name: str  # the path of a file, or the name of a module
    arguments: tuple[str, ...] = ()
    is_module: bool = False  # python -m


class RankPlace(NamedTuple):
    """Where a rank is among the others."""

    rank: int
    world_size: int
    ranks_per_node: int
    sees_own: bool = False  # whether it sees its own GPU alone, as "cuda:0"

    def environment(self) -> dict[str, str]:
        """Return the variables that its launcher sets for this rank."""
        node, local = divmod(self.rank, self.ranks_per_node)
        nodes = -(-self.world_size // self.ranks_per_node)
        numbers = {
            "RANK": self.rank,
            "LOCAL_RANK": local,
            "WORLD_SIZE": self.world_size,
            "LOCAL_WORLD_SIZE": self.ranks_per_node,
            "GROUP_RANK": node,
            "GROUP_WORLD_SIZE": nodes,
            "ROLE_RANK": self.rank,
            "ROLE_WORLD_SIZE": self.world_size,
            "MASTER_PORT": PORT,
            "TORCHELASTIC_RESTART_COUNT": 0,
            "TORCHELASTIC_MAX_RESTARTS": 0,
            "OMP_NUM_THREADS": 1,
        }
        if self.sees_own:
            numbers["CUDA_VISIBLE_DEVICES"] = local
        return {
            **{name: str(number) for name, number in numbers.items()},
            "ROLE_NAME": "default",
            "MASTER_ADDR": "127.0.0.1",
            "TORCHELASTIC_RUN_ID": "simulated",
        }


def run_script(script: Script) -> None:
    """Run a script as the program of this process.

    Raises:
        WordsError: it has ended with an exit status that is not 0.
        BaseException: what it has raised.
    """
    sys.argv = [script.name, *script.arguments]
    with as_program():
        if script.is_module:
            sys.path.insert(0, os.getcwd())
            runpy.run_module(script.name, run_name="__main__", alter_sys=True)
        else:
            sys.path.insert(0, os.path.dirname(os.path.abspath(script.name)))
            runpy.run_path(script.name, run_name="__main__")


@contextmanager
def as_program() -> Iterator[None]:
    """Take the end of a block for that of a program.

    What it has forked ends here, and an exit status of 0 is no error.

    Raises:
        WordsError: it has ended with an exit status that is not 0.
    """
    try:
        with ending_children():
            yield
    except SystemExit as end:
        status = exit_status(end)
        if status != 0:
            message = "" if isinstance(end.code, int) else f" ({end.code})"
            raise WordsError(
                f"the script has ended with exit status {status}{message}"
            ) from end
