"""A job on its way to the ranks: the surroundings, then the function.

Two pickles in one file. The first says where the ranks are to be when they
read the second, which may import modules from there. Cloudpickle makes the
second: a function that no rank could import, such as one of a notebook cell,
travels as a copy with all that it uses.
"""

import importlib
import io
import os
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

Job = tuple[Callable[..., Any], tuple[Any, ...]]


def pickled(fn: Callable[..., Any], args: tuple[Any, ...]) -> bytes:
    """Return a job as bytes, with the parent's path and environment."""
    file = io.BytesIO()
    path = [str(entry) or os.getcwd() for entry in sys.path]
    pickle.dump((os.getcwd(), path, dict(os.environ)), file)
    _pickler(file).dump((fn, args))
    return file.getvalue()


def unpickled(path: Path, own: dict[str, str]) -> Job:
    """Go where the parent was, keep our own variables, and read the job."""
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


def _pickler(file: io.BytesIO) -> pickle.Pickler:
    """Return cloudpickle's, which refuses tensors that lie on other devices.

    It is imported here, so that dpkit can be imported where it is missing.
    """
    try:
        import cloudpickle  # type: ignore[import-untyped]
    except ImportError as error:
        raise ImportError(
            "cloudpickle copies functions to other processes, and cannot be "
            f"imported ({error}); install it: pip install cloudpickle"
        ) from error

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        def reducer_override(self, obj: Any) -> Any:
            if isinstance(obj, torch.Tensor) and obj.device.type != "cpu":
                raise ValueError(
                    "a tensor for other processes has to lie on the CPU "
                    f"(shape: {tuple(obj.shape)}, device: {obj.device}); "
                    ".cpu() copies it"
                )
            return super().reducer_override(obj)

    return Pickler(file)
