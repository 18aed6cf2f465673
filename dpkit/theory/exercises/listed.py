"""Which exercises can be checked without torch."""

from dpkit.theory.exercises import (
    collectives,
    elsewhere,
    large_batches,
    overlap,
    pipelines,
    practice,
    scaling,
    sharding,
    splitting,
)
from dpkit.theory.exercises.verdict import checks_in

CHECKS = {
    name: check
    for module in (
        scaling,
        collectives,
        overlap,
        sharding,
        pipelines,
        splitting,
        practice,
        large_batches,
        elsewhere,
    )
    for name, check in checks_in(module).items()
}
