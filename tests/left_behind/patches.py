"""Patches: functions and classes of dpkit, dpbook, torch and Python."""

import builtins
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from tests.left_behind.kinds import MISSING, Change, Kind, Seen, from_to

# Registering simulated devices changes torch, as it should.
REGISTERED = "whether simulated devices are registered"
# PyTorch puts others there when it imports its compiler.
BY_DYNAMO = (
    ("torch", "manual_seed"),
    ("torch.nn.Module", "__init__"),
    ("torch.nn.Module", "__setstate__"),
)
OURS = ("dpkit", "dpbook")
OF_PYTHON = (builtins, os, shutil, signal, socket, subprocess, time)
OF_TORCH = (
    "torch",
    "torch.Tensor",
    "torch.cuda",
    "torch.distributed",
    "torch.distributed.distributed_c10d",
    "torch.nn.Module",
    "torch.nn.functional",
)


class Patches(Kind):
    """The modules and classes that a test might patch."""

    def __init__(self) -> None:
        self.is_known = False  # whether nothing has changed since a look
        self._num_modules = 0
        self._owners: dict[str, Any] = {}
        # What is in each of them, in their order: as it is, and as it was.
        self._views: list[Any] = []
        self._values: list[Any] = []
        self._copies: list[dict[str, Any]] = []

    def look(self) -> Seen:
        """Return a copy of each namespace, the same while nothing changes.

        There are 16,000 names, so that this takes some 0.1 ms.
        """
        if self.is_known:
            self.is_known = False
        elif len(sys.modules) != self._num_modules:
            self._num_modules = len(sys.modules)
            known = dict(zip(self._owners, self._copies))
            self._owners = dict(_owners())
            self._copy(known)
        elif not _equal([*map(tuple, self._views)], self._values):
            self._copy(dict(zip(self._owners, self._copies)))
        seen = dict(zip(self._owners, self._copies))
        return {REGISTERED: _is_registered(), **seen}

    def _copy(self, known: Seen) -> None:
        """Copy the namespaces that are not as they were when last copied."""
        namespaces = [vars(owner) for owner in self._owners.values()]
        self._copies = [
            known[name]
            if _equal(namespace, known.get(name))
            else dict(namespace)
            for name, namespace in zip(self._owners, namespaces)
        ]
        self._views = [namespace.values() for namespace in namespaces]
        self._values = [*map(tuple, self._views)]

    def same(self, one: Any, other: Any) -> bool:
        """Return whether a namespace is as it was."""
        return one is other

    def changes(self, before: Seen, now: Seen) -> list[Change]:
        """Return which functions, classes, modules, constants are others."""
        registering = now[REGISTERED] and not before[REGISTERED]
        return [
            Change((owner, name), namespace.get(name, MISSING), value)
            for owner, namespace in before.items()
            if owner != REGISTERED and namespace is not now[owner]
            if not (registering and owner.partition(".")[0] == "torch")
            for name, value in self._replaced(owner, namespace, now[owner])
        ]

    def _replaced(
        self, owner: str, before: dict[str, Any], now: dict[str, Any]
    ) -> Iterator[tuple[str, Any]]:
        """Yield names and what they stand for now, where it is another."""
        # Modules may get names: those of modules in them, that are imported.
        is_class = isinstance(self._owners[owner], type)
        for name in {**before, **now} if is_class else before:
            if (owner, name) in BY_DYNAMO:
                continue
            value = now.get(name, MISSING)
            old = before.get(name, MISSING)
            if old is value:
                continue
            if name.isupper() or _is_code(old) or _is_code(value):
                yield name, value

    def describe(self, changes: list[Change]) -> Iterator[str]:
        """Describe what stands in the place of what."""
        for change in changes:
            place = ".".join(change.key)
            yield f"a patch: {from_to(change._replace(key=place))}"

    def put_back(self, changes: list[Change]) -> None:
        """Put in its place what has been replaced."""
        for change in changes:
            owner, name = change.key
            if change.before is MISSING:
                delattr(self._owners[owner], name)
            else:
                setattr(self._owners[owner], name, change.before)


def _equal(now: Any, copies: Any) -> bool:
    try:
        return bool(now == copies)  # the same values are not compared
    except Exception:  # by tensors, whose equality is no truth
        return False


def _owners() -> Iterator[tuple[str, Any]]:
    """Yield the names and the namespaces that are looked at."""
    for module in OF_PYTHON:
        yield module.__name__, module
    for name, module in [*sys.modules.items()]:
        if name.partition(".")[0] not in OURS or module is None:
            continue
        yield name, module
        for value in [*vars(module).values()]:
            if isinstance(value, type) and value.__module__ == name:
                yield f"{name}.{value.__qualname__}", value
    torch: Any = sys.modules.get("torch")
    for path in OF_TORCH:
        value = torch
        for name in path.split(".")[1:]:
            value = getattr(value, name, None)
        if value is not None:
            yield path, value


def _is_code(value: object) -> bool:
    kinds = (ModuleType, classmethod, staticmethod, property)
    return callable(value) or isinstance(value, kinds)


def _is_registered() -> bool:
    patching = sys.modules.get("dpkit.sim.changes.change")
    return patching is not None and bool(patching._undo)


PATCHES = Patches()
