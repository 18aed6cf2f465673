"""Tell PyTorch about the device type ``sim``.

PyTorch keeps one place for a backend from outside, PrivateUse1. Everything
that claims it stands in this file: the name, the module ``torch.sim``, the
operations that make a tensor out of nothing, and the list of tensor types
that optimizers may update many at a time.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch
from torch.optim.optimizer import _foreach_supported_types
from torch.utils import backend_registration
from torch.utils._foreach_utils import (
    _foreach_supported_types as _foreach_utils_types,
)

from dpkit.sim import torch_sim
from dpkit.sim.tensor import CPU, SimTensor, plain

# The versions of torch that the tests of dpkit.sim were run on: the API that
# carries it is experimental.
OLDEST_TORCH = (2, 11)
NEWEST_TORCH = (2, 15)

_library: torch.library.Library | None = None  # keeps the kernels registered


def register() -> None:
    """Make ``sim:0``, ``sim:1``, … devices of torch; again is no harm.

    Raises:
        RuntimeError: this torch is outside the range that sim was tried on,
            or another backend holds torch's place for one.
    """
    global _library
    if _library is not None:
        return
    check_torch_version(torch.__version__)
    holder = torch._C._get_privateuse1_backend_name()
    if holder != "privateuseone":
        raise RuntimeError(
            "another backend holds the one place that torch keeps for a "
            f"backend from outside (backend: {holder!r})"
        )
    backend_registration._setup_privateuseone_for_python_backend(
        "sim", backend_module=torch_sim
    )
    _library = torch.library.Library("aten", "IMPL", "PrivateUse1")
    for name in _factories():
        _library.impl(name, _factory_kernel(name))
    _library.impl("_copy_from", _copy_from)
    _foreach_supported_types.append(SimTensor)
    _foreach_utils_types.append(SimTensor)  # type: ignore[arg-type]
    # Moving a module keeps its parameters the same objects, as on CUDA, so
    # that optimizers and tied weights go along.
    torch.__future__.set_swap_module_params_on_conversion(True)


def check_torch_version(version: str) -> None:
    """Raise RuntimeError if sim was not tried on this version of torch."""
    major, minor = (int(n) for n in re.findall(r"\d+", version)[:2])
    if not OLDEST_TORCH <= (major, minor) <= NEWEST_TORCH:
        span = " to ".join(f"{a}.{b}" for a, b in (OLDEST_TORCH, NEWEST_TORCH))
        raise RuntimeError(
            "simulated devices were not tried on this version of torch "
            f"(torch: {version}, tried: {span}); install one of those, or "
            'ask for devices(kind="cpu")'
        )


def _factories() -> list[str]:
    """Return the names of operations with a device but no tensor to go by."""
    names = []
    for schema in torch._C._jit_get_all_schemas():
        kinds = {a.name: str(a.type) for a in schema.arguments}
        makes_tensor = "device" in kinds and "Tensor" not in str(kinds)
        name = f"{schema.name}.{schema.overload_name}".rstrip(".")
        if makes_tensor and _has_kernel_of_its_own(name):
            names.append(name.removeprefix("aten::"))
    return names


def _has_kernel_of_its_own(name: str) -> bool:
    """Tell whether ``name`` is an operation of aten, not made of others."""
    return (
        name.startswith("aten::")
        and torch._C._dispatch_has_kernel(name)
        and not torch._C._dispatch_has_kernel_for_dispatch_key(
            name, "CompositeImplicitAutograd"
        )
    )


def _factory_kernel(name: str) -> Callable[..., torch.Tensor]:
    """Return a kernel that makes the tensor on the CPU, then wraps it."""
    packet, _, overload = name.partition(".")
    func = getattr(getattr(torch.ops.aten, packet), overload or "default")

    def kernel(*args: Any, **kwargs: Any) -> torch.Tensor:
        device = torch_sim.full_device(kwargs.pop("device"))
        return SimTensor(func(*args, device=CPU, **kwargs), device)

    return kernel


def _copy_from(
    source: torch.Tensor, target: torch.Tensor, non_blocking: bool = False
) -> torch.Tensor:
    """Copy between two devices, for C++ code that bypasses Python's dispatch.

    ``torch.tensor(data, device="sim:0")`` is such code.
    """
    plain(target).copy_(plain(source), non_blocking)
    return target
