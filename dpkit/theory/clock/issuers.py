"""Who issues work to the devices: hosts, and their threads."""

from __future__ import annotations

from dataclasses import dataclass

from dpkit.theory.hardware import Host


@dataclass
class Issuers:
    """Threads that issue work, and how far each of them is.

    Attributes:
        kind: "python": what the program does itself. "backward": autograd's
            threads. "communication": threads beside those, which send
            gradients while backward goes on.
        times: The time of each, in picoseconds: of one for all devices, or of
            one for each.

    Example:
        >>> threads = Issuers("backward", [3, 5])
        >>> threads.mark(1), threads.mark()
        (5, 5)
    """

    kind: str
    times: list[int]

    def of(self, device: int) -> int:
        """Return the number of the one that drives a device."""
        return 0 if len(self.times) == 1 else device

    def mark(self, device: int | None = None) -> int:
        """Return the time of the one of a device; of the latest."""
        if device is None:
            return max(self.times)
        return self.times[self.of(device)]

    def launch_seconds(self, host: Host) -> float:
        """Return what it costs them to issue an operation."""
        if self.kind == "python":
            return host.launch_seconds
        return host.backward_launch_seconds

    def row(self, device: int, num_hosts: int) -> tuple[str, str]:
        """Return the row of a timeline for the one that drives a device.

        Args:
            device: The number of the device.
            num_hosts: How many hosts there are.
        """
        if num_hosts > 1:
            return f"host:{device}", self.kind
        if self.kind in ("python", "communication"):
            return "host", self.kind
        return "host", f"{self.kind} sim:{device}"
