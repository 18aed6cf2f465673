"""What the whole process has: environment, folder, and settings of torch."""

import gc
import locale
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tests.left_behind.kinds import (
    MISSING,
    Change,
    Fault,
    Kind,
    Seen,
    from_to,
)

# Setuptools enters its own libraries in sys.path when it is imported.
VENDORED = os.path.join("setuptools", "_vendor")
PHASE = "PYTEST_CURRENT_TEST"  # each phase of a test has its own


class Environment(Kind):
    """The variables of the environment."""

    fault = Fault.ANY

    def look(self) -> Seen:
        """Return what ``os.environ`` has."""
        return {k: v for k, v in os.environ.items() if k != PHASE}

    def describe(self, changes: list[Change]) -> Iterator[str]:
        """Describe what was, and what is."""
        for change in changes:
            yield f"a variable of the environment: {from_to(change)}"

    def put_back(self, changes: list[Change]) -> None:
        """Set them as they were."""
        for change in changes:
            if change.before is MISSING:
                del os.environ[change.key]
            else:
                os.environ[change.key] = change.before


class Setting(NamedTuple):
    """A setting of the process: how it is read, and how it is set."""

    read: Callable[[], Any]
    write: Callable[[Any], Any]


def _of(owner: Any, name: str) -> Setting:
    return Setting(
        lambda: getattr(owner, name), lambda value: setattr(owner, name, value)
    )


def _list(
    values: list[Any], counts: Callable[[Any], bool] = lambda value: True
) -> Setting:
    def write(before: list[Any]) -> None:
        values[:] = before

    return Setting(lambda: [*filter(counts, values)], write)


def _handler(number: signal.Signals) -> Setting:
    def read() -> Any:
        handler = signal.getsignal(number)
        backward = sys.modules.get("dpkit.sim.tensors.backward")
        if backward and handler is backward._interrupt:
            # It comes with the first operation on a simulated device.
            return signal.default_int_handler
        return handler

    return Setting(read, lambda before: signal.signal(number, before))


def _excepthook() -> Any:
    """Return the hook, but Python's for that of torch.distributed.

    It comes with the first process group, stays, and adds the rank to errors.
    """
    is_of_torch = "torch.distributed" in str(sys.excepthook.__module__)
    return sys.__excepthook__ if is_of_torch else sys.excepthook


OF_PYTHON = {
    "the current folder": Setting(os.getcwd, os.chdir),
    "sys.path": _list(sys.path, lambda path: not path.endswith(VENDORED)),
    "sys.argv": _list(sys.argv),
    "sys.meta_path": _list(sys.meta_path),
    "sys.excepthook": Setting(
        _excepthook, lambda before: setattr(sys, "excepthook", before)
    ),
    "sys.displayhook": _of(sys, "displayhook"),
    "sys.dont_write_bytecode": _of(sys, "dont_write_bytecode"),
    "sys.getrecursionlimit": Setting(
        sys.getrecursionlimit, sys.setrecursionlimit
    ),
    "sys.getswitchinterval": Setting(
        sys.getswitchinterval, sys.setswitchinterval
    ),
    "the collection of garbage": Setting(
        gc.isenabled, lambda on: gc.enable() if on else gc.disable()
    ),
    "the locale": Setting(
        lambda: locale.setlocale(locale.LC_ALL),
        lambda before: locale.setlocale(locale.LC_ALL, before),
    ),
    "tempfile.tempdir": _of(tempfile, "tempdir"),
    "the handler of SIGINT": _handler(signal.SIGINT),
    "the handler of SIGTERM": _handler(signal.SIGTERM),
}


def _of_torch(torch: Any) -> dict[str, Setting]:
    """Return the settings of torch, which is imported."""
    from torch.nn.modules import module
    from torch.optim import optimizer

    cpu, tables = torch.backends, {}
    for owner, names in (
        (module, [n for n in vars(module) if n.startswith("_global_")]),
        (optimizer, [n for n in vars(optimizer) if n.startswith("_global_")]),
    ):
        for name in names:
            value = getattr(owner, name)
            if isinstance(value, dict):
                tables[f"{owner.__name__}.{name}"] = _table(value)
    return tables | {
        "the default dtype": Setting(
            torch.get_default_dtype, torch.set_default_dtype
        ),
        "whether gradients are kept": Setting(
            torch.is_grad_enabled, torch.set_grad_enabled
        ),
        "the inference mode": Setting(
            torch.is_inference_mode_enabled, lambda before: None
        ),
        "the detection of anomalies": Setting(
            torch.is_anomaly_enabled, torch.set_anomaly_enabled
        ),
        "deterministic algorithms": Setting(
            torch.are_deterministic_algorithms_enabled,
            torch.use_deterministic_algorithms,
        ),
        "the precision of float32 products": Setting(
            torch.get_float32_matmul_precision,
            torch.set_float32_matmul_precision,
        ),
        "the number of threads": Setting(
            torch.get_num_threads, torch.set_num_threads
        ),
        "autocast on the CPU": Setting(
            lambda: torch.is_autocast_enabled("cpu"),
            lambda before: torch.set_autocast_enabled("cpu", before),
        ),
        "oneDNN": Setting(
            lambda: cpu.mkldnn.enabled,
            lambda before: cpu.mkldnn.set_flags(before),
        ),
        "modes of dispatch": Setting(
            torch._C._len_torch_dispatch_stack, _pop_dispatch_modes
        ),
        "modes of functions, such as a default device": Setting(
            torch._C._len_torch_function_stack, _pop_function_modes
        ),
        "the process group of torch.distributed": Setting(
            torch.distributed.is_initialized,
            lambda before: before or torch.distributed.destroy_process_group(),
        ),
    }


def _table(hooks: dict[Any, Any]) -> Setting:
    """Return the setting that is a table of hooks, but for those of dpkit.

    Simulated devices come with hooks when they are registered, and keep them.
    """

    def read() -> dict[Any, Any]:
        return {k: v for k, v in hooks.items() if not _is_of_dpkit(v)}

    def write(before: dict[Any, Any]) -> None:
        for key in read():
            del hooks[key]
        hooks.update(before)

    return Setting(read, write)


def _is_of_dpkit(hook: Any) -> bool:
    return str(getattr(hook, "__module__", "")).startswith("dpkit.sim.")


def _pop_dispatch_modes(before: int) -> None:
    import torch
    from torch.utils._python_dispatch import _pop_mode

    while torch._C._len_torch_dispatch_stack() > before:
        _pop_mode()


def _pop_function_modes(before: int) -> None:
    import torch
    from torch.overrides import _pop_mode

    while torch._C._len_torch_function_stack() > before:
        _pop_mode()


class Settings(Kind):
    """Settings of Python and, where it is imported, of torch."""

    fault = Fault.CHANGED

    def __init__(self) -> None:
        self._settings = OF_PYTHON
        self._has_torch = False

    def look(self) -> Seen:
        """Return their values, by their names."""
        torch = sys.modules.get("torch")
        if not self._has_torch and hasattr(torch, "distributed"):
            self._settings, self._has_torch = (
                OF_PYTHON | _of_torch(torch),
                True,
            )
        return {name: s.read() for name, s in self._settings.items()}

    def describe(self, changes: list[Change]) -> Iterator[str]:
        """Describe what was, and what is."""
        for change in changes:
            yield f"a setting of the process: {from_to(change)}"

    def put_back(self, changes: list[Change]) -> None:
        """Set them as they were."""
        for change in changes:
            self._settings[change.key].write(change.before)


ENVIRONMENT, SETTINGS = Environment(), Settings()
