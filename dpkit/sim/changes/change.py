"""One change of torch: whether it fits, how it is made and taken back.

``patches.py`` lists all of them; :func:`apply_all` makes them all or none.

A function that replaces one of PyTorch's compares equal to it. Libraries keep
sets of PyTorch's functions (torchvision, those that return an image), and look
up in them the function that is called: both have to be found. Scripted code
(``torch.jit``) has a table of identities, where the new function is entered.
"""

import inspect
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import update_wrapper
from types import MethodType
from typing import Any

import torch
from torch.jit import _builtins

Undo = Callable[[], object]
Kernel = tuple[str, Callable[..., Any]]


class StandIn:
    """A callable that equals the function that it stands in for."""

    def __init__(
        self, original: Callable[..., Any], call: Callable[..., Any]
    ) -> None:
        update_wrapper(self, original)
        self.original = original
        self.call = update_wrapper(call, original)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: D102
        return self.call(*args, **kwargs)

    def __get__(self, instance: object, owner: object = None) -> Any:
        return self if instance is None else MethodType(self.call, instance)

    def __eq__(self, other: object) -> bool:
        return other is self or bool(self.original == other)

    def __hash__(self) -> int:
        return hash(self.original)

    def __repr__(self) -> str:
        return repr(self.original)

    def __reduce__(self) -> Any:
        """Pickle by name: that of a method is looked up in its class."""
        if isinstance(self.original, StandIn):
            return self.original.__reduce__()
        name = self.__name__  # type: ignore[attr-defined]
        is_method = hasattr(self.original, "__objclass__")
        return (getattr, (torch.Tensor, name)) if is_method else name


@dataclass(frozen=True)
class Patch:
    """A change of torch."""

    name: str  # what of torch is changed
    fits: Callable[[], bool]  # the probe: has it what the change needs?
    apply: Callable[[], Undo]  # makes the change; returns what takes it back


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
        owner: A module or class of torch.
        name: The name of its attribute.
        wrap: Given the attribute, return what takes its place.
        takes: The names of the arguments that the attribute has to have for
            the patch to fit. None: they are not checked.
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
    """Put ``new`` in the place of an attribute.

    Args:
        owner: A module or class of torch.
        name: The name of its attribute.
        new: What takes its place.
        takes: As for :func:`wrapped`.
    """
    return wrapped(owner, name, lambda old: new, takes)


def stood_in(
    owner: Any, name: str, wrap: Callable[[Any], Callable[..., Any]]
) -> Patch:
    """Put ``wrap(old)``, which equals ``old``, in the place of ``name``."""
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
    """Give torch kernels for a dispatch key.

    Args:
        namespace: That of the operations, such as "aten".
        key: The dispatch key, such as "AutogradPrivateUse1".
        kernels: Return the pairs of an operation's name and its kernel.
        needed: The operations that torch has to have a kernel for already, or
            the patch does not fit.
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


_undo: list[Undo] = []
_failure: RuntimeError | None = None
_lock = threading.RLock()  # a second thread waits for the first to be done


def apply_all(patches: Sequence[Patch]) -> None:
    """Apply all patches, once, or none; another call repeats the error."""
    global _failure
    with _lock:
        if _failure is not None:
            raise _failure
        if _undo:
            return
        try:
            for patch in patches:
                if not patch.fits():
                    raise RuntimeError("this torch lacks what the patch needs")
            for patch in patches:
                _undo.append(patch.apply())
        except BaseException as error:
            undo_all()
            if not isinstance(error, Exception):  # Ctrl-C
                raise
            _failure = RuntimeError(
                "simulated devices do not fit this torch (torch: "
                f"{torch.__version__}, patch: {patch.name}, reason: {error}); "
                'devices(kind="cpu") needs no patch'
            )
            raise _failure from error


def undo_all() -> None:
    """Take back what has been applied, the last first."""
    while _undo:
        _undo.pop()()
