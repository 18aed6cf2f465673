"""Tensors on simulated devices that are alive, and who holds them."""

import gc
import sys
from collections.abc import Iterator
from functools import cache
from types import (
    FrameType,
    FunctionType,
    GeneratorType,
    GetSetDescriptorType,
)
from typing import Any

from tests.left_behind.kinds import Change, Kind, Seen

MOST = 5  # tensors that are described
DEPTH = 12  # holders of holders
ENDS = FunctionType, GeneratorType, type(cache(len))  # have a name, and last


class Tensors(Kind):
    """The blocks of the simulated memory, a storage each."""

    may_end = True  # with the thread that has them

    def look(self) -> Seen:
        """Return the blocks that are alive, by their identity."""
        memory = _memory()
        if memory is None or not any(memory.live):
            return {}
        return {id(b): b for b in memory.alive() if b.num_bytes}

    def describe(self, changes: list[Change]) -> Iterator[str]:
        """Describe each tensor, and who holds it."""
        storages = {id(made): made.key for made in _memory().alive()}
        gc.unfreeze()  # what is frozen is not searched
        tensors = _by_storage()
        for change in changes[:MOST]:
            users = tensors.get(storages.get(change.key, 0), [])
            yield _describe(change.now, users)
        gc.freeze()
        if changes[MOST:]:
            total = sum(change.now.num_bytes for change in changes[MOST:])
            yield f"{len(changes) - MOST} more tensors, {total} bytes"

    def put_back(self, changes: list[Change]) -> None:
        """Count them no more: they are in the way of other hardware."""
        memory, left = _memory(), {change.key for change in changes}
        for made in memory.alive():
            if id(made) in left:
                memory._release(made)


def _memory() -> Any:
    configuration = sys.modules.get("dpkit.sim.devices.configuration")
    return configuration and configuration.simulation.memory


def _by_storage() -> dict[int, list[Any]]:
    """Return the simulated tensors that there are, by their storages."""
    from dpkit.sim.tensors.behaviour import Behaviour

    found: dict[int, list[Any]] = {}
    for value in gc.get_objects():
        if Behaviour in type(value).__mro__ and hasattr(value, "backing"):
            key = value.backing.untyped_storage()._cdata
            found.setdefault(key, []).append(value)
    return found


def _describe(block: Any, tensors: list[Any]) -> str:
    place = f"{block.num_bytes} bytes on sim:{block.device} ({block.category})"
    if not tensors:
        return f"a storage of {place}, which no tensor of Python has"
    kind = f"{tuple(tensors[0].shape)}, {tensors[0].dtype}"
    return f"a tensor, {kind}, {place}, {_holders(tensors)}"


def _holders(tensors: list[Any]) -> str:
    """Return who holds tensors, who holds that, and so on, up to a name."""
    paths = {
        id(tensor): "held by nothing that was found" for tensor in tensors
    }
    front, seen, path = tensors, {*paths}, paths[id(tensors[0])]
    for depth in range(DEPTH):
        holders = [
            holder
            for holder in gc.get_referrers(*front)
            if id(holder) not in seen and not _is_of_search(holder, front)
        ]
        for holder in holders:
            seen.add(id(holder))
            held = next((x for x in front if _refers(holder, x)), front[0])
            name, is_root = _name(holder, held)
            before = f"{paths[id(held)]} ← " if depth else "held by "
            path = paths[id(holder)] = f"{before}{name}"
            if is_root:
                return path
        if not holders:
            break
        front = holders
    return path


def _refers(holder: Any, value: Any) -> bool:
    return any(found is value for found in gc.get_referents(holder))


def _is_of_search(holder: Any, front: list[Any]) -> bool:
    """Tell whether this search itself is what holds something."""
    if isinstance(holder, FrameType):
        return holder.f_globals is globals()
    if isinstance(holder, dict):
        return False
    if isinstance(holder, GetSetDescriptorType):  # each class has some
        return True
    return isinstance(holder, (list, tuple)) and (
        holder is front or any(holder is x for x in gc.get_referents(front))
    )


def _name(holder: Any, held: Any) -> tuple[str, bool]:
    """Return what a holder is called, and whether the search ends there."""
    if isinstance(holder, dict):
        keys = (str(k) for k, v in holder.items() if v is held or k is held)
        key = next(keys, "")[:60]
        module = sys.modules.get(str(holder.get("__name__")))
        if module is not None and vars(module) is holder:
            return f"{module.__name__}.{key}", True
        return f"a dict, at {key!r}", False
    if isinstance(holder, FrameType):
        return f"a frame of {holder.f_code.co_qualname}", True
    name = getattr(holder, "__qualname__", None)
    if isinstance(name, str):
        return f"{type(holder).__name__} {name}", isinstance(holder, ENDS)
    return type(holder).__qualname__, False


TENSORS = Tensors()
