"""What copies pass over: the ports of devices, and what they share."""

from dpkit.sim.clock.resources import (
    FULL,
    Needed,
    ResidualBandwidth,
    Resource,
    Share,
)
from dpkit.sim.hardware.clusters import Cluster


class Paths:
    """The ports and shared paths of a cluster.

    A port sends and receives at the same time, but one copy each way. Where
    devices do not reach each other, all copies of those on one switch pass
    through the host over one path each way. A copy that is slower than the
    path takes only a share of it, and leaves the rest to others. So does a
    collective of several nodes, which the network slows, with the ports in
    the nodes: a copy at the same time goes at the residual bandwidth.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._found: dict[tuple[str, str, object], Resource] = {}

    # What a copy from device 0 to device 2 occupies:
    #
    #     peer to peer       port out of 0, port into 2
    #     through the host   port out of 0, path into the host,
    #                        port into 2, path out of the host
    #
    # A copy from memory that is not pinned runs at 5.5 GB/s. Over a path of
    # 13 it takes 5.5 / 13: two of them fit side by side. A third waits for
    # one to end: no copy is slowed down to make room.

    def between(
        self,
        source: int | None,
        target: int | None,
        share: float = 1.0,
        of_port: float = 1.0,
    ) -> list[Needed]:
        """Return what a copy occupies.

        Args:
            source: The number of the device that sends, None for the host's
                memory.
            target: The same of where the copy arrives.
            share: Its rate, as a part of what the shared path can carry.
            of_port: Its rate, as a part of what a port can carry.
        """
        cluster = self.cluster
        link = cluster.link_between(source, target)
        # A link and a network of one name are still two sets of ports.
        devices = [d for d in (source, target) if d is not None]
        nodes = set(map(cluster.node_of, devices))
        kind = f"{link.name} across" if len(nodes) == 2 else link.name
        path: list[Needed] = []
        for device, port, shared in (
            (source, "out", "into the host"),
            (target, "in", "out of the host"),
        ):
            if device is not None:
                own = self._resource(kind, port, device)
                part = Share(own, int(FULL * of_port))
                path.append(part if of_port < 1 else ResidualBandwidth(own))
                if not link.peer_to_peer:
                    switch = cluster.switch_of(device)
                    common = self._resource(kind, shared, switch)
                    path.append(Share(common, int(FULL * share)))
        return path

    def _resource(self, link: str, channel: str, owner: object) -> Resource:
        return self._found.setdefault((link, channel, owner), Resource())
