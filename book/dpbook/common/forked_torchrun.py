"""torchrun, whose processes are forks of a Python that has imported torch.

It is torchrun's own agent that starts them, tells each its rank, and ends all
if one fails. ``python -m torch.distributed.run`` starts a new Python for
itself and one for each rank, and each of these imports torch.
"""

import runpy
import signal
import sys
import traceback
import uuid
from io import TextIOWrapper
from pathlib import Path

from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
from torch.distributed.launcher.api import LaunchConfig, elastic_launch


def main() -> None:
    """Run a program in ranks on this machine.

    The command line has the number of ranks, a folder for logs, and the
    command that ``run_program`` takes.
    """
    num_processes, logs, *command = sys.argv[1:]
    assert isinstance(sys.stdout, TextIOWrapper)
    # Whole lines, or those of two ranks would be mixed.
    sys.stdout.reconfigure(line_buffering=True, write_through=False)
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=int(num_processes),
        logs_specs=DefaultLogsSpecs(log_dir=logs),
        run_id=str(uuid.uuid4()),
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",  # any port that is free
        max_restarts=0,
        start_method="fork",
    )
    elastic_launch(config, run_program)(*command)


def run_program(*command: str) -> None:
    """Run a program in this process, as Python would with a command line.

    Args:
        command: A file of Python, or ``-m`` and a module; then its arguments.
    """
    # A new Python has none of the agent's own answers to signals.
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    is_module = command[0] == "-m"
    program, *arguments = command[1:] if is_module else command
    sys.argv[:] = [program, *arguments]
    try:
        if is_module:
            runpy.run_module(program, run_name="__main__", alter_sys=True)
        else:
            sys.path.insert(0, str(Path(program).resolve().parent))
            runpy.run_path(program, run_name="__main__")
    except SystemExit as end:
        if end.code:
            raise
    except Exception:  # torch would leave a file that holds it
        traceback.print_exc()
        sys.exit(1)
