"""What PyTorch's ``context_parallel`` has once in a process.

In its block attention is another function, which knows the rank's mesh, and
DTensor has other rules. A rank that is in such a block may wait for one that
is not, or that has another mesh. So all of it changes with the turn.
"""

from functools import cache
from typing import Any, NamedTuple

from torch.nn import functional


class ContextParallelState(NamedTuple):
    """What a rank has set of it."""

    attention: Any  # F.scaled_dot_product_attention, as the rank calls it
    replaced: dict[Any, Any]  # what stands in for attention -> attention
    options: dict[str, Any]  # such as whether parts are balanced
    has_rules: bool  # whether attention may be cut by positions

    @classmethod
    def now(cls) -> "ContextParallelState":
        """Return what there is."""
        library, rules = modules()
        return cls(
            attention=functional.scaled_dot_product_attention,
            replaced=dict(library._replaced_functions),
            options=dict(vars(library._cp_options)),
            has_rules=bool(rules._cp_strategy_contexts),
        )

    def restore(self) -> None:
        """Go on with it."""
        library, rules = modules()
        functional.scaled_dot_product_attention = self.attention
        library._replaced_functions.clear()
        library._replaced_functions.update(self.replaced)
        vars(library._cp_options).update(self.options)
        if self.has_rules and not rules._cp_strategy_contexts:
            rules.register_cp_sharding_rules()
        elif rules._cp_strategy_contexts and not self.has_rules:
            rules.unregister_cp_sharding_rules()


@cache
def modules() -> tuple[Any, Any]:
    """Return PyTorch's modules: the ring, and the rules of DTensor."""
    # Here, not above: they take as long as DTensor.
    from torch.distributed.tensor.experimental._context_parallel import (
        _attention,
        _sharding_rules,
    )

    return _attention, _sharding_rules
