"""Tell PyTorch about the device type ``sim``.

PyTorch keeps one place for a backend from outside, PrivateUse1. This file
claims it: the name, the module ``torch.sim``, the kernels, and a place in the
list of tensor types that optimizers may update many at a time.
"""

from __future__ import annotations

import re

import torch
from torch.optim.optimizer import _foreach_supported_types
from torch.utils import backend_registration
from torch.utils._foreach_utils import (
    _foreach_supported_types as _foreach_utils_types,
)

from dpkit.sim import torch_sim
from dpkit.sim.kernels import kernels
from dpkit.sim.tensor import SimTensor

# The versions of torch that the tests of dpkit.sim were run on: the API that
# carries it is experimental.
OLDEST_TORCH = (2, 11)
NEWEST_TORCH = (2, 15)

_libraries: dict[str, torch.library.Library] = {}  # keep kernels registered


def register() -> None:
    """Make ``sim:0``, ``sim:1``, … devices of torch; again is no harm.

    Raises:
        RuntimeError: this torch is outside the range that sim was tried on,
            or another backend holds torch's place for one.
    """
    if _libraries:
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
    for key in ("PrivateUse1", "AutogradPrivateUse1"):
        _libraries[key] = torch.library.Library("aten", "IMPL", key)
    for name, kernel, key in kernels():
        _libraries[key].impl(name, kernel)
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
