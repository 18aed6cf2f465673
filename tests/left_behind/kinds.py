"""What can be left behind: one kind of things, and what has come of it.

A kind is looked at before a test and after it. What it sees is a dictionary,
so that all kinds are compared in one way::

    before    {"HOME": "/root", "LANG": "C"}
    after     {"HOME": "/tmp", "LANG": "C"}
    change    "HOME": from "/root" to "/tmp"
"""

from collections.abc import Iterator
from enum import Enum
from typing import Any, NamedTuple

Seen = dict[Any, Any]


class Missing(Enum):
    """Stands for what is not there."""

    MISSING = "nothing"


MISSING = Missing.MISSING


class Change(NamedTuple):
    """What differs between two looks at a kind."""

    key: Any
    before: Any  # MISSING where it was not there
    now: Any  # likewise


class Fault(Enum):
    """Which changes of a kind a test must not leave."""

    NEW = "what is new: a thread may end, but none may begin"
    CHANGED = "what has another value; a new one is of a module just imported"
    ANY = "what is new, has another value, or has gone"


class Kind:
    """One kind of things that can be left behind."""

    fault = Fault.NEW
    may_end = False  # whether such things go by themselves, in a while

    def look(self) -> Seen:
        """Return what there is now."""
        raise NotImplementedError

    def describe(self, changes: list[Change]) -> Iterator[str]:
        """Describe what has been left, a line each."""
        raise NotImplementedError

    def put_back(self, changes: list[Change]) -> None:
        """Make all as it was, as far as that can be."""

    def changes(self, before: Seen, now: Seen) -> list[Change]:
        """Return what has been left."""
        if before == now:
            return []
        found = [
            Change(key, before.get(key, MISSING), now.get(key, MISSING))
            for key in sorted(before.keys() | now.keys(), key=repr)
        ]
        return [
            change
            for change in found
            if not self.same(change.before, change.now)
            if self._is_fault(change)
        ]

    def same(self, one: Any, other: Any) -> bool:
        """Return whether two values of a key are the same."""
        return bool(one == other)

    def _is_fault(self, change: Change) -> bool:
        is_new, is_gone = change.before is MISSING, change.now is MISSING
        if self.fault is Fault.NEW:
            return is_new
        return self.fault is Fault.ANY or not (is_new or is_gone)


def from_to(change: Change) -> str:
    """Describe a value that has changed."""
    if change.before is MISSING:
        return f"{change.key} is new: {_short(change.now)}"
    if change.now is MISSING:
        return f"{change.key} has gone: {_short(change.before)}"
    if isinstance(change.now, list):
        return f"{change.key} {_difference(change.before, change.now)}"
    before, now = _short(change.before), _short(change.now)
    return f"{change.key} was {before}, and is {now}"


def _difference(before: list[Any], now: list[Any]) -> str:
    new = [value for value in now if value not in before]
    gone = [value for value in before if value not in now]
    words = [f"has {_short(new)}"] if new else []
    words += [f"lacks {_short(gone)}"] if gone else []
    return " and ".join(words) or "is in another order"


def _short(value: Any, most: int = 200) -> str:
    text = repr(value)
    return text if len(text) <= most else f"{text[:most]}…"
