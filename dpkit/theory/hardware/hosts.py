"""Hosts: what issuing work costs.

A new host is a file in ``data/hosts`` and its name in ``HOSTS``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from dpkit.theory.hardware.presets import check_numbers, shipped


@dataclass(frozen=True)
class Host:
    """What issuing work costs the host: eager PyTorch on a CPU.

    Attributes:
        name: What ``configure`` calls it.
        launch_seconds: The host's time for an operation of the forward pass.
        backward_launch_seconds: The same when autograd issues it.
        view_seconds: The host's time for a view, which launches nothing.
        wait_seconds: The host's time for waiting on a device.
        pageable_bytes_per_second: The rate of copies to and from memory that
            is not pinned.
        sources: Where each number is from.

    Raises:
        ValueError: a number cannot be.

    Example:
        >>> HOSTS["eager"].launch_seconds
        8e-06
    """

    name: str
    launch_seconds: float
    backward_launch_seconds: float
    view_seconds: float
    wait_seconds: float
    pageable_bytes_per_second: float
    sources: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_numbers(self)


HOSTS = shipped(Host, "eager eager-fast cpu")
