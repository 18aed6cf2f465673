"""How torch finds ``SimTensor.__torch_dispatch__``, without a detour.

When an operation meets a tensor of a subclass, torch asks in turn:

1. Is there a rule for this operator and this class?
2. Is the class a ``DTensor``? To know, torch imports
   ``torch.distributed.tensor`` when it first asks, which takes 0.4 s.
3. What does the class's ``__torch_dispatch__`` return?

So there is a rule for simulated tensors, the same for every operator: to call
``__torch_dispatch__``, and no function on the way to it, for
:func:`dpkit.sim.tensors.backward.poll` looks at who has called the operation.

C++ keeps the function that finds rules from its first question on. If sim was
registered later, its operations take the longer way, and do the same.
"""

from collections.abc import Callable
from typing import Any

from torch._ops import OpOverload

from dpkit.sim.tensors.tensor import SimTensor

Rule = Callable[..., Any]

# Torch calls a rule with            (class, func, types, args, kwargs).
# If that returns NotImplemented, it goes on to the third question, but calls
# the rule once more, with           (func, types, args, kwargs).
# The function of the class method takes both, and again does not take part.
_RULE: Rule = vars(SimTensor)["__torch_dispatch__"].__func__


def finding_sim(
    find: Callable[[OpOverload, type], Rule | None],
) -> Callable[[OpOverload, type], Rule | None]:
    """Return a function that finds rules, also that of simulated tensors."""

    # It is asked for the class of a tensor, or of a TorchDispatchMode.
    def find_rule(op: OpOverload, torch_dispatch_class: type) -> Rule | None:
        if torch_dispatch_class is SimTensor:
            return _RULE
        return find(op, torch_dispatch_class)

    return find_rule
