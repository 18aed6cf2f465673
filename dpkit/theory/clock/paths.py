"""What copies pass over: the ports of devices, and what they share."""

from dpkit.theory.clock.resources import Resource
from dpkit.theory.hardware.clusters import Cluster


class Paths:
    """The ports and shared paths of a cluster.

    A port sends and receives at the same time, but one copy each way. Where
    devices do not reach each other, all copies of a node pass through its
    host, one at a time each way.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._found: dict[tuple[str, str, int], Resource] = {}

    # What a copy from device 0 to device 2 occupies:
    #
    #     peer to peer       port out of 0, port into 2
    #     through the host   port out of 0, path into the host,
    #                        port into 2, path out of the host

    def between(
        self, source: int | None, target: int | None
    ) -> list[Resource]:
        """Return what a copy occupies; None is the host's memory."""
        cluster = self.cluster
        link = cluster.link_between(source, target)
        # A link and a network of one name are still two sets of ports.
        devices = [d for d in (source, target) if d is not None]
        nodes = set(map(cluster.node_of, devices))
        kind = f"{link.name} across" if len(nodes) == 2 else link.name
        path = []
        for device, port, shared in (
            (source, "out", "into the host"),
            (target, "in", "out of the host"),
        ):
            if device is not None:
                path.append((kind, port, device))
                if not link.peer_to_peer:
                    path.append((kind, shared, cluster.node_of(device)))
        return [self._found.setdefault(key, Resource()) for key in path]
