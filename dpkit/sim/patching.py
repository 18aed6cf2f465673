"""One change of torch: whether it fits, how it is made and taken back.

``patches.py`` lists all of them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch.jit import _builtins

from dpkit.sim.stand_ins import StandIn

Undo = Callable[[], object]
Kernel = tuple[str, Callable[..., Any]]


@dataclass(frozen=True)
class Patch:
    """A change of torch.

    Attributes:
        name: What of torch is changed.
        fits: The probe: tells whether this torch has what the change needs.
        apply: Makes the change; returns what takes it back.
    """

    name: str
    fits: Callable[[], bool]
    apply: Callable[[], Undo]


def required(owner: Any, name: str) -> Patch:
    """Change nothing, but ask for a private name that the package uses."""
    return Patch(
        _path(owner, name),
        lambda: getattr(owner, name, None) is not None,
        lambda: lambda: None,
    )


def wrapped(
    owner: Any,
    name: str,
    wrap: Callable[[Any], object],
    takes: list[str] | None = None,
) -> Patch:
    """Put ``wrap(old)`` in the place of an attribute.

    Args:
        owner: The module or class that has it.
        name: Its name there.
        wrap: Makes the new one of the old one.
        takes: The names of the arguments that the function has to have;
            None: any, or it is no function.
    """

    def fits() -> bool:
        old = getattr(owner, name, None)
        if takes is None:
            return old is not None
        return callable(old) and list(inspect.signature(old).parameters) == (
            takes
        )

    def apply() -> Undo:
        before = vars(owner).get(name)
        setattr(owner, name, wrap(getattr(owner, name)))
        if before is None:  # a class had inherited it
            return lambda: delattr(owner, name)
        return lambda: setattr(owner, name, before)

    return Patch(_path(owner, name), fits, apply)


def replaced(
    owner: Any, name: str, new: object, takes: list[str] | None = None
) -> Patch:
    """Put ``new`` in the place of an attribute; else as :func:`wrapped`."""
    return wrapped(owner, name, lambda old: new, takes)


def stood_in(
    owner: Any, name: str, wrap: Callable[[Any], Callable[..., Any]]
) -> Patch:
    """Let a function stand in for another, and equal it.

    Args:
        owner: The module or class that has it.
        name: Its name there.
        wrap: Makes the function that is called of the old one.
    """
    plain = wrapped(owner, name, lambda old: StandIn(old, wrap(old)))

    def fits() -> bool:
        table = getattr(_builtins, "_find_builtin", None)
        return table is not None and plain.fits()

    def apply() -> Undo:
        scripted = _builtins._find_builtin(getattr(owner, name))
        undo = plain.apply()
        if scripted is None:
            return undo
        new = getattr(owner, name)
        _builtins._register_builtin(new, scripted)

        def undo_both() -> None:
            undo()
            table = _builtins._builtin_table or {}
            table.pop(id(new), None)

        return undo_both

    return Patch(plain.name, fits, apply)


def _path(owner: Any, name: str) -> str:
    """Return where an attribute is, as in ``torch.nn.Module.to``."""
    if inspect.isclass(owner):
        return f"{owner.__module__}.{owner.__qualname__}.{name}"
    return f"{owner.__name__}.{name}"


def added(owner: Any, name: str, new: object) -> Patch:
    """Give a class an attribute that it does not have."""

    def apply() -> Undo:
        setattr(owner, name, new)
        return lambda: delattr(owner, name)

    return Patch(_path(owner, name), lambda: name not in vars(owner), apply)


def listed(owner: Any, name: str, item: object) -> Patch:
    """Append ``item`` to a list of torch."""

    def apply() -> Undo:
        getattr(owner, name).append(item)
        return lambda: getattr(owner, name).remove(item)

    return Patch(
        _path(owner, name),
        lambda: isinstance(getattr(owner, name, None), list),
        apply,
    )


def implemented(
    namespace: str,
    key: str,
    kernels: Callable[[], Iterable[Kernel]],
    needed: Iterable[str] = (),
) -> Patch:
    """Give torch kernels for one of its dispatch keys.

    Args:
        namespace: The namespace of the operations, such as "aten".
        key: The name of the key.
        kernels: Returns the name of each operation and its kernel.
        needed: Operations that torch has to have.
    """

    def fits() -> bool:
        has = torch._C._dispatch_has_kernel
        return _library_fits() and all(
            has(f"{namespace}::{name}") for name in needed
        )

    def apply() -> Undo:
        library = torch.library.Library(namespace, "IMPL", key)
        try:
            for name, kernel in kernels():
                library.impl(name, kernel)
        except BaseException:
            library._destroy()
            raise
        return library._destroy  # it also keeps the library alive

    return Patch(f"the kernels of {namespace} for {key}", fits, apply)


def fallback(key: str, kernel: Callable[..., Any]) -> Patch:
    """Give torch one kernel for all operations of a dispatch key."""

    def fits() -> bool:
        known = getattr(torch._C.DispatchKey, key, None)
        return _library_fits() and known is not None

    def apply() -> Undo:
        library = torch.library.Library("_", "IMPL", key)
        library.fallback(kernel)
        return library._destroy

    return Patch(f"the fallback of {key}", fits, apply)


def _library_fits() -> bool:
    names = ("impl", "fallback", "_destroy")
    return all(hasattr(torch.library.Library, name) for name in names)
