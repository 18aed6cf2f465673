"""What a machine is made of, in numbers.

``accelerators`` -- devices that compute: begin here;
``links`` -- what copies pass over;
``hosts`` -- what issuing work costs;
``presets`` -- how the files in ``data/`` are found, read, checked, written;
``scaling`` -- a preset made faster by a factor;
``clusters`` -- devices of one kind, what joins them, what drives them;
``costs`` -- the seconds that an operation or a copy takes on them.

A new link is a file in ``data/links``. Enter its name in ``LINKS`` (in
``links.py``, beside its kind) and in two lists of ``tests/test_hardware.py``:
of the names, and of the links from fast to slow. A new accelerator or host is
added in the same way.
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
