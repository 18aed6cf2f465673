"""What is known of an operator of torch, and what it costs.

``operator_of(func)`` in ``record`` returns its record. The bytes and the
arithmetic in it become seconds in ``charge`` (``dpkit.sim.tensors.charge``).

``record`` -- all that is known of one, made at its first call: begin here;
``operations`` -- what it reads and writes, on which devices;
``flops`` -- its arithmetic;
``memory_traffic`` -- the bytes that it reads and writes;
``precision`` -- the rate of its arithmetic;
``random_numbers`` -- what it draws;
``uncharged_arithmetic`` -- products that are not charged, which warn;
``refusals`` -- what is refused, in words that say what to use instead.
"""

from dpkit.sim.operators.operations import check_machine_of, is_freed
from dpkit.sim.operators.random_numbers import default_generator

__all__ = [
    "check_machine_of",
    "default_generator",
    "is_freed",
]
