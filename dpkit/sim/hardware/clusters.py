"""A cluster: devices of one kind, what joins them, and what drives them.

Devices may be on several nodes, machines that a network joins. Inside a node
they are joined by the link; to another node each has its own port::

    node 0    0 ─ 1 ─ 2 ─ 3      the link inside
              │   │   │   │      the network across
    node 1    4 ─ 5 ─ 6 ─ 7
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf

from dpkit.sim.hardware.parts import (
    ACCELERATORS,
    HOSTS,
    LINKS,
    Accelerator,
    Host,
    Link,
)
from dpkit.sim.hardware.presets import find
from dpkit.units import check_count, check_known, check_number


@dataclass(frozen=True)
class Cluster:
    """Devices of one kind, what joins them, and what drives them.

    Example:
        >>> two_nodes = Cluster(
        ...     8, ACCELERATORS["a100"], LINKS["nvlink3"], HOSTS["eager"],
        ...     ranks_per_node=4,
        ... )
        >>> two_nodes.name
        'a100, nvlink3, nodes of 4 on ethernet100'
        >>> two_nodes.node_of(5), two_nodes.link_between(3, 5).name
        (1, 'ethernet100')
    """

    num_devices: int
    accelerator: Accelerator
    link: Link
    host: Host
    #: "one" host drives all, or one "per_device" each its own.
    hosts: str = "one"
    #: Rank -> how many times as long its operations take.
    slow: Mapping[int, float] = field(default_factory=dict)
    #: How many devices a node has, or None where there is one node.
    ranks_per_node: int | None = None
    network: Link = LINKS["ethernet100"]  #: what joins the nodes
    #: How many devices of a node share a path to its host, or None for all.
    devices_per_switch: int | None = None

    def __post_init__(self) -> None:
        check_count("num_devices", self.num_devices)
        for name in ("ranks_per_node", "devices_per_switch"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
        check_known("hosts", self.hosts, ("one", "per_device"))
        if not self.network.peer_to_peer:
            raise ValueError(
                "a network has a port for each device, and does not pass "
                f"through one host (network: {self.network.name!r}, "
                "peer_to_peer: False)"
            )
        self._check_slow()

    def _check_slow(self) -> None:
        for rank, factor in self.slow.items():
            if rank not in range(self.num_devices):
                raise ValueError(
                    "a rank that is not there cannot be slow "
                    f"(rank: {rank}, devices: {self.num_devices})"
                )
            check_number(f"slow[{rank}]", factor)
            if not 0 < factor < inf:
                raise ValueError(
                    "a factor of time must be positive and finite "
                    f"(slow: {{{rank}: {factor}}})"
                )

    @property
    def host_link(self) -> Link:
        """The path between the devices and the host's memory."""
        if not self.link.peer_to_peer:
            return self.link
        return find(LINKS, self.accelerator.host_link)

    def node_of(self, device: int) -> int:
        """Return the number of the node with a device."""
        # 8 devices, 4 on a node: 0 1 2 3 on node 0, 4 5 6 7 on node 1.
        return device // (self.ranks_per_node or self.num_devices)

    def switch_of(self, device: int) -> tuple[int, int]:
        """Return the node of a device, and the number of its switch there."""
        # Nodes of 4, switches of 2: device 7 is the last of 0 1 2 3 on node 1,
        # so that it hangs on switch 3 // 2 = 1.
        size = self.ranks_per_node or self.num_devices
        in_node = device % size
        return device // size, in_node // (self.devices_per_switch or size)

    def link_between(self, source: int | None, target: int | None) -> Link:
        """Return what a copy passes over; None is the host's memory.

        Example:
            >>> two_nodes = cluster(8, ranks_per_node=4)
            >>> [two_nodes.link_between(0, d).name for d in (3, 4, None)]
            ['nvlink2', 'ethernet100', 'pcie3']
        """
        if source is None or target is None:
            return self.host_link
        if self.node_of(source) == self.node_of(target):
            return self.link
        return self.network

    @property
    def name(self) -> str:
        """The names of the presets, for labels."""
        name = f"{self.accelerator.name}, {self.link.name}"
        if self.ranks_per_node is None:
            return name
        return f"{name}, nodes of {self.ranks_per_node} on {self.network.name}"


def cluster(
    num_devices: int = 8,
    accelerator: str | Accelerator = "v100",
    link: str | Link = "nvlink2",
    host: str | Host = "eager",
    hosts: str = "one",
    slow: Mapping[int, float] | None = None,
    ranks_per_node: int | None = None,
    network: str | Link = "ethernet100",
    devices_per_switch: int | None = None,
) -> Cluster:
    """Return a :class:`.Cluster`, where a preset may be given by its name.

    Args:
        num_devices: How many devices there are, in all nodes together.
        accelerator: The devices: a name in ``ACCELERATORS``, a preset, or a
            file of presets, whose name ends in ".json".
        link: What joins the devices of a node, in ``LINKS`` or as above.
        host: What drives the devices, in ``HOSTS`` or as above.
        hosts: "one" host drives all devices, or one "per_device" each its own.
        slow: Rank -> how many times as long its operations take; by default
            all are equally fast.
        ranks_per_node: How many devices a node has; None: all are on one.
        network: What joins the nodes, in ``LINKS`` or as above.
        devices_per_switch: How many devices of a node share a path to its
            host; None: all of them.

    Raises:
        ValueError: a name is unknown, or a number is out of its range.

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
        slow=_slow(slow),
        ranks_per_node=ranks_per_node,
        network=find(LINKS, network, "network"),
        devices_per_switch=devices_per_switch,
    )


def _slow(slow: Mapping[int, float] | None) -> dict[int, float]:
    """Return the factors of slow ranks, by rank."""
    try:
        return dict(slow or {})
    except (TypeError, ValueError):
        raise TypeError(
            f"not a factor by rank (slow: {slow!r}); {{2: 1.5}} makes rank "
            "2 take 1.5 times as long"
        ) from None
