"""A job on its way to the ranks: the surroundings, then the function.

Two pickles in one file. The first says where the ranks are to be when they
read the second, which imports the module of the function.
"""

from __future__ import annotations

import importlib
import io
import os
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any

import torch

Job = tuple[Callable[..., Any], tuple[Any, ...]]


def pickled(fn: Callable[..., Any], args: tuple[Any, ...]) -> bytes:
    """Return the job as bytes, with the parent's path and environment.

    Args:
        fn: A function that the ranks can import.
        args: Its arguments; tensors on the CPU.

    Raises:
        ValueError: the ranks could not import the function or something
            among its arguments, or a tensor does not lie on the CPU.
    """
    file = io.BytesIO()
    path = [str(entry) or os.getcwd() for entry in sys.path]
    pickle.dump((os.getcwd(), path, dict(os.environ)), file)
    _Pickler(file).dump((fn, args))
    return file.getvalue()


def unpickled(path: Path, own: dict[str, str]) -> Job:
    """Go where the parent was, and import the function.

    Args:
        path: The file of the job.
        own: The environment variables that this rank has for itself.
    """
    with path.open("rb") as file:
        folder, sys.path[:], environment = pickle.load(file)
        os.chdir(folder)
        wanted = {**environment, **own}
        for name in os.environ.keys() - wanted.keys():
            del os.environ[name]
        os.environ.update(wanted)
        importlib.invalidate_caches()  # modules may be new since we started
        job: Job = pickle.load(file)
        return job


class _Pickler(pickle.Pickler):
    """A pickler that refuses what another process could not import."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, torch.Tensor) and obj.device.type != "cpu":
            raise ValueError(
                "a tensor for other processes has to lie on the CPU (shape: "
                f"{tuple(obj.shape)}, device: {obj.device}); .cpu() copies it"
            )
        if isinstance(obj, (FunctionType, type)):
            # "<lambda>" and "f.<locals>.g" are no names to import by.
            if obj.__module__ == "__main__" or "<" in obj.__qualname__:
                raise ValueError(
                    "another process cannot import the given function or "
                    f"class (name: {obj.__qualname__}, module: "
                    f"{obj.__module__}); put it into a module, at its top "
                    "level"
                )
        return NotImplemented
