"""The doors of packages: a name is imported when it is first asked for.

So ``import dpkit`` takes no time, and what needs no torch does not wait for
it: as SciPy does it (Scientific Python, SPEC 1). Type checkers read the
imports that stand under ``if TYPE_CHECKING`` in each door instead.
"""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(
    package: str, defined_in: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package.

    They know the given names, and the modules and folders of the package:
    after ``import dpkit``, ``dpkit.batch_norm`` is there.

    Args:
        package: The ``__name__`` of the package.
        defined_in: Public name -> the module that defines it.
    """
    here = sys.modules[package]

    def get(name: str) -> Any:
        """Import a public name, and keep it, or a part of the package."""
        if name in defined_in:
            found = getattr(import_module(defined_in[name]), name)
            setattr(here, name, found)
            return found
        if name in _parts(here.__path__):
            return import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    def names() -> list[str]:
        """Return the names of the package, imported or not."""
        return sorted({*vars(here), *defined_in, *_parts(here.__path__)})

    return get, names


def _parts(path: Any) -> set[str]:
    """Return the modules and folders of a package, as files tell."""
    # Here, not above: it takes a millisecond.
    from pkgutil import iter_modules

    return {part.name for part in iter_modules(path)} - {"__main__"}
