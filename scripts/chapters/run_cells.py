"""Run the cells of a notebook in a fresh kernel of this Python."""

import os
from pathlib import Path

from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbformat import NotebookNode
from nbval.kernel import CURRENT_ENV_KERNEL_NAME, NbvalKernelspecManager
from traitlets import default

SECONDS_PER_CELL = 600
SECONDS_TO_START = 1200  # a kernel, on a machine that does much else


def kernel_environment() -> dict[str, str]:
    """Return the environment of a kernel: no progress bars, inline plots."""
    environment = os.environ | {"TQDM_DISABLE": "1"}
    environment.pop("MPLBACKEND", None)  # the kernel's own choice is inline
    return environment


class ThisPython(AsyncKernelManager):
    """Start the kernel that nbval compares with: that of this Python."""

    @default("kernel_spec_manager")
    def _use_this_python(self) -> NbvalKernelspecManager:
        return NbvalKernelspecManager(parent=self)


def execute(notebook: NotebookNode, folder: Path) -> None:
    """Run every cell of `notebook` in place, with `folder` as its folder.

    Raises:
        CellExecutionError: a cell without the tag `raises-exception` failed.
    """
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
    client = NotebookClient(
        notebook,
        kernel_name=CURRENT_ENV_KERNEL_NAME,
        kernel_manager_class=ThisPython,
        extra_arguments=["--log-level=ERROR"],
        timeout=SECONDS_PER_CELL,
        startup_timeout=SECONDS_TO_START,
        record_timing=False,
        shutdown_kernel="immediate",  # as nbval does; seconds less
        resources={"metadata": {"path": str(folder)}},
    )
    client.execute(env=kernel_environment())
