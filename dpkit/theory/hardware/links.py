"""Links: what copies between devices pass over.

A new link is a file in ``data/links`` and its name in ``LINKS``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from dpkit.theory.hardware.presets import check_numbers, shipped


@dataclass(frozen=True)
class Link:
    """What copies between devices pass over, in both directions at once.

    Attributes:
        name: What ``configure`` calls it.
        bytes_per_second: The datasheet's rate of one port, one direction.
        achieved: The fraction of it that large copies reach.
        latency_seconds: What each copy costs besides.
        peer_to_peer: Whether devices reach each other; if not, all copies
            between them pass over the one path through the host.
        sources: Where each number is from.

    Raises:
        ValueError: a number cannot be.

    Example:
        >>> Link("x", -1, achieved=1, latency_seconds=0, peer_to_peer=True)
        Traceback (most recent call last):
            ...
        ValueError: a rate must be positive (bytes_per_second: -1)
    """

    name: str
    bytes_per_second: float
    achieved: float
    latency_seconds: float
    peer_to_peer: bool
    sources: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_numbers(self)


LINKS = shipped(
    Link,
    "pcie3 pcie4 pcie5 nvlink1 nvlink2 nvlink3 nvlink4 ethernet25 ethernet100",
)
