"""The timeline of a real run, by PyTorch's profiler."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from dpkit.sim.timeline import Timeline


def profiled(work: Callable[[], object]) -> Timeline:
    """Run ``work`` under PyTorch's profiler; return its timeline."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        with _errors_of_the_process_to(Path(folder) / "remarks.txt"):
            with torch.profiler.profile() as profile:
                work()
            profile.export_chrome_trace(str(path))
        return Timeline.from_chrome(path)


@contextmanager
def _errors_of_the_process_to(path: Path) -> Iterator[None]:
    """Write to a file what the profiler prints on standard error."""
    usual = os.dup(2)
    with path.open("wb") as file:
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(usual, 2)
            os.close(usual)
