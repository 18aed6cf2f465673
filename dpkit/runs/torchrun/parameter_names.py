"""The names of parameters, as the modules say that a script calls.

The first module that has some to train is the script's model: its parameters
have the names that it gives them. In another, names begin with its class::

    the first     0.weight, 0.bias
    a Head        Head.weight, Head.bias
    another       Head 2.weight, Head 2.bias
"""

from collections import Counter
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.weak import WeakIdKeyDictionary, WeakTensorKeyDictionary

_WRAPPERS = ("module", "_orig_mod", "_fsdp_wrapped_module")


class ParameterNames:
    """Learns the names of parameters from modules."""

    def __init__(self) -> None:
        self._names: Any = WeakTensorKeyDictionary()
        self._known: Any = WeakIdKeyDictionary()  # modules
        self._others: Counter[str] = Counter()  # by class, after the first
        self._has_first = False

    def name_of(self, parameter: torch.Tensor) -> str | None:
        """Return the name of a parameter; None: no module is known to it."""
        found: str | None = self._names.get(parameter)
        return found

    def known(self) -> list[torch.Tensor]:
        """Return the parameters that have a name."""
        return list(self._names)

    def learn(self, module: nn.Module) -> list[tuple[str, nn.Parameter]]:
        """Learn from a module that is called; return what is new.

        Those inside of a module are learned with it. A module without
        anything to train, such as one that changes images, has no names.
        """
        if module in self._known:
            return []
        if not any(p.requires_grad for p in module.parameters()):
            return []
        for part in module.modules():
            self._known[part] = True
        new = [
            (without_wrappers(name), p)
            for name, p in module.named_parameters()
            if p not in self._names
        ]
        prefix = self._prefix_of(module) if new else ""
        named = [(prefix + name, p) for name, p in new]
        self._names.update({p: name for name, p in named})
        return named

    def _prefix_of(self, module: nn.Module) -> str:
        if not self._has_first:
            self._has_first = True
            return ""
        wrapped = isinstance(module, DistributedDataParallel)
        kind = type(module.module if wrapped else module).__name__
        self._others[kind] += 1
        number = self._others[kind]
        return f"{kind}." if number == 1 else f"{kind} {number}."


def without_wrappers(name: str) -> str:
    """Return the name of a parameter or buffer without those of wrappers."""
    return ".".join(p for p in name.split(".") if p not in _WRAPPERS)
