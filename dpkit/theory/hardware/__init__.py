"""What a machine is made of, in numbers.

``accelerators`` -- devices that compute: begin here;
``links`` -- what copies pass over; ``hosts``: what issuing work costs;
``data/`` -- a file for each known preset. A new link is a file in
    ``data/links`` and its name at the end of ``links.py``;
``presets`` -- how such files are found, read, checked and written;
``scaling`` -- a preset made faster by a factor;
``clusters`` -- devices of one kind, what joins them, what drives them;
``costs`` -- the seconds that an operation or a copy takes on them.
"""

from dpkit.theory.hardware.accelerators import (
    ACCELERATORS,
    DTYPES,
    Accelerator,
)
from dpkit.theory.hardware.hosts import HOSTS, Host
from dpkit.theory.hardware.links import LINKS, Link
from dpkit.theory.hardware.presets import find
from dpkit.theory.hardware.scaling import faster

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
