"""Load the double's libraries, one before torch and one after it."""

import ctypes
import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any


def library(name: str, mode: int = ctypes.DEFAULT_MODE) -> ctypes.CDLL:
    """Load one of the double's libraries, or return it if it is loaded."""
    folder = Path(os.environ["CUDA_DOUBLE_LIBRARIES"])
    return ctypes.CDLL(str(folder / name), mode=mode)


def before_torch() -> None:
    """Define the functions of CUDA's runtime and of NCCL for all to come.

    The dynamic linker takes the first definition of a name that it has met
    in a library that is global: this one, and not CUDA's own.
    """
    library("runtime.so", mode=ctypes.RTLD_GLOBAL)


def after_torch(torch: Any) -> None:
    """Put the double's kernels in the place of CUDA's."""
    kernels = library("kernels.so")
    kernels.cuda_double_install_kernels()
    torch.cuda._lazy_call(kernels.cuda_double_watch_allocator)
    # The profiler of kernels (CUPTI) talks to the hardware itself.
    only_cpu = {torch.profiler.ProfilerActivity.CPU}
    torch.autograd._supported_activities = lambda: set(only_cpu)


class _Around(importlib.abc.Loader):
    """Import torch as its own loader does, between the two libraries."""

    def __init__(self, own: importlib.abc.Loader) -> None:
        self.own = own

    def create_module(
        self, spec: importlib.machinery.ModuleSpec
    ) -> ModuleType | None:
        return self.own.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        sys.meta_path[:] = [
            finder
            for finder in sys.meta_path
            if not isinstance(finder, _Finder)
        ]
        before_torch()
        self.own.exec_module(module)
        after_torch(module)


class _Finder(importlib.abc.MetaPathFinder):
    """Find torch, until it is imported, and no other module."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != "torch":
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        if spec is not None and spec.loader is not None:
            spec.loader = _Around(spec.loader)
        return spec


def follow_import_of_torch() -> None:
    """Load the libraries when torch is imported."""
    sys.meta_path.insert(0, _Finder())
