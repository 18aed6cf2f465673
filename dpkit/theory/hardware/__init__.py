"""What a machine is made of, in numbers.

``kinds`` -- accelerators, links and hosts: begin here;
``presets`` -- those that are known by name;
``preset_files`` -- those that ``python -m dpkit calibrate`` wrote;
``clusters`` -- devices of one kind, what joins them, what drives them;
``costs`` -- the seconds that an operation or a copy takes on them.
"""

from dpkit.theory.hardware.kinds import (
    ACCELERATORS,
    DTYPES,
    HOSTS,
    LINKS,
    Accelerator,
    Host,
    Link,
    faster,
    find,
)

__all__ = [
    "ACCELERATORS",
    "DTYPES",
    "HOSTS",
    "LINKS",
    "Accelerator",
    "Host",
    "Link",
    "faster",
    "find",
]
