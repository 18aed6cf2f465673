"""A cluster: devices of one kind, what joins them, and what drives them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dpkit.theory.hardware import (
    ACCELERATORS,
    HOSTS,
    LINKS,
    Accelerator,
    Host,
    Link,
    find,
)


@dataclass(frozen=True)
class Cluster:
    """Devices of one kind, what joins them, and what drives them.

    Attributes:
        num_devices: How many.
        accelerator: What they are.
        link: What joins them.
        host: What issuing work costs.
        hosts: "one" host drives all, or one "per_device" each its own.
        slow: Rank -> how many times as long its operations take.
    """

    num_devices: int
    accelerator: Accelerator
    link: Link
    host: Host
    hosts: str = "one"
    slow: Mapping[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.num_devices < 1:
            raise ValueError(
                "the number of devices is below one "
                f"(num_devices: {self.num_devices})"
            )
        if self.hosts not in ("one", "per_device"):
            raise ValueError(
                "unknown number of hosts "
                f"(hosts: {self.hosts!r}, known: one, per_device)"
            )
        for rank, factor in self.slow.items():
            if rank not in range(self.num_devices):
                raise ValueError(
                    "a rank that is not there cannot be slow "
                    f"(rank: {rank}, devices: {self.num_devices})"
                )
            if not factor > 0:
                raise ValueError(
                    "a factor of time must be positive "
                    f"(slow: {{{rank}: {factor}}})"
                )

    @property
    def host_link(self) -> Link:
        """The path between the devices and the host's memory."""
        if not self.link.peer_to_peer:
            return self.link
        return find(LINKS, self.accelerator.host_link)

    @property
    def name(self) -> str:
        """The names of the presets, for labels."""
        return f"{self.accelerator.name}, {self.link.name}"


def cluster(
    num_devices: int = 8,
    accelerator: str | Accelerator = "v100",
    link: str | Link = "nvlink2",
    host: str | Host = "eager",
    hosts: str = "one",
    slow: Mapping[int, float] | None = None,
) -> Cluster:
    """Return a cluster by the names of presets.

    Args:
        num_devices: How many devices.
        accelerator: A name in ``ACCELERATORS``, or an accelerator.
        link: A name in ``LINKS``, or a link.
        host: A name in ``HOSTS``, or a host.
        hosts: "one" or "per_device".
        slow: Rank -> how many times as long its operations take.

    Raises:
        ValueError: a name is unknown, or a number cannot be.

    Example:
        >>> two = cluster(2, accelerator="v100-pcie", link="pcie3")
        >>> two.name, two.host_link.name
        ('v100-pcie, pcie3', 'pcie3')
    """
    return Cluster(
        num_devices=num_devices,
        accelerator=find(ACCELERATORS, accelerator),
        link=find(LINKS, link),
        host=find(HOSTS, host),
        hosts=hosts,
        slow=dict(slow or {}),
    )
