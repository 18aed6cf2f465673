"""Which exercises can be checked without torch."""

from importlib import import_module

from dpkit.theory.exercises.verdict import checks_in

FILES = (
    "scaling collectives overlap sharding pipelines splitting cluster "
    "practice large_batches elsewhere"
).split()
CHECKS = {
    name: check
    for file in FILES
    for name, check in checks_in(
        import_module(f"dpkit.theory.exercises.{file}")
    ).items()
}
