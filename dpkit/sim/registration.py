"""Tell PyTorch about the device type ``sim``.

PyTorch keeps one place for a backend from outside, PrivateUse1. This file
claims it: the name, the module ``torch.sim``, the kernels, and a place in the
list of tensor types that optimizers may update many at a time.
"""

from __future__ import annotations

import torch
from torch.optim.optimizer import _foreach_supported_types
from torch.utils import backend_registration
from torch.utils._foreach_utils import (
    _foreach_supported_types as _foreach_utils_types,
)

from dpkit.sim import (
    autocast,
    backward,
    categories,
    generators,
    lazy,
    modules,
    serialization,
    torch_sim,
    tracing,
)
from dpkit.sim.kernels import kernels
from dpkit.sim.tensor import SimTensor

KEYS = ("CPU", "PrivateUse1", "AutogradPrivateUse1", "AutocastPrivateUse1")
_libraries: dict[str, torch.library.Library] = {}  # keep kernels registered


def claim() -> None:
    """Claim torch's place for a backend; :func:`dpkit.sim.register` calls it.

    Raises:
        RuntimeError: another backend holds it.
    """
    if _libraries:
        return
    holder = torch._C._get_privateuse1_backend_name()
    if holder != "privateuseone":
        raise RuntimeError(
            "another backend holds the one place that torch keeps for a "
            f"backend from outside (backend: {holder!r})"
        )
    backend_registration._setup_privateuseone_for_python_backend(
        "sim", backend_module=torch_sim, device_guard=backward.Guard()
    )
    backward.install()
    categories.install()
    generators.install()
    lazy.install()
    modules.install()
    serialization.install()
    tracing.install()
    for key in KEYS:
        _libraries[key] = torch.library.Library("aten", "IMPL", key)
    for name, kernel, key in kernels():
        _libraries[key].impl(name, kernel)
    for name, kernel in autocast.kernels():
        _libraries["AutocastPrivateUse1"].impl(name, kernel)
    # What autocast has no rule for goes through as it is.
    everything = torch.library.Library("_", "IMPL", "AutocastPrivateUse1")
    everything.fallback(torch.library.fallthrough_kernel)
    _libraries["all"] = everything
    _foreach_supported_types.append(SimTensor)
    _foreach_utils_types.append(SimTensor)  # type: ignore[arg-type]
