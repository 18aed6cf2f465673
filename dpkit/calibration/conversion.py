"""From times to presets.

The fixed part of an operation's time is shared out among host and device, so
that the shares add up to it and none is counted twice::

    fixed = launch + wait + kernel + half / rate

    on a GPU, say: 12 µs = 5 (launch) + 4 (wait) + 2 (kernel) + 1
    on a CPU, whose host does the work itself, all of it is launch
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from dpkit.calibration.fitting import Line, fit_line
from dpkit.calibration.stopwatch import Times
from dpkit.theory.hardware import Accelerator, Host, Link
from dpkit.theory.units import show_seconds

WHOLE = "the rate is a measured one, so all of it is achieved"


@dataclass(frozen=True)
class DeviceFacts:
    """What is known of a device without timing it."""

    name: str  # as it is sold
    memory_bytes: int
    synchronous: bool  # whether the host does the work itself
    peer_to_peer: bool = False  # whether others are reached without the host


@dataclass(frozen=True)
class Calibration:
    """What was measured, as presets."""

    accelerator: Accelerator
    host: Host  # what issuing work costs
    link: Link  # to another device where there is one, else to the host
    times: Times = field(repr=False)  # what the presets were fitted to
    spread: float = 0.0  # median over fastest repetition, less 1

    def __str__(self) -> str:
        device, host = self.accelerator, self.host
        rows = {
            f"products, {dtype}": f"{rate / 1e9:.4g} GFLOP/s"
            for dtype, rate in device.flops_per_second.items()
        }
        rows["sums, copies"] = f"{device.bytes_per_second / 1e9:.4g} GB/s"
        rows[f"link: {self.link.name}"] = (
            f"{self.link.bytes_per_second / 1e9:.4g} GB/s"
        )
        rows["launch"] = (
            f"{show_seconds(host.launch_seconds)}, in backward "
            f"{show_seconds(host.backward_launch_seconds)}"
        )
        rows["kernel"] = show_seconds(device.kernel_seconds)
        lines = [f"  {name:<18} {value}" for name, value in rows.items()]
        return "\n".join([f"{device.name}:", *lines])


@dataclass(frozen=True)
class Shares:
    """Who takes how much of the seconds that are fixed."""

    launch: float  # the host, to issue an operation
    wait: float  # the host, to wait for it; a synchronous one does not
    kernel: float  # the device

    @property
    def total(self) -> float:
        """What the smallest operation takes, issued and waited for."""
        return self.launch + self.wait + self.kernel


def to_presets(times: Times, device: DeviceFacts, source: str) -> Calibration:
    """Turn the times of ``probes`` into presets.

    Raises:
        ValueError: times do not grow with sizes.
    """
    products = {
        kind.removeprefix("product "): fit_line(samples)
        for kind, samples in times.items()
        if kind.startswith("product ")
    }
    traffic = fit_line(times["elementwise"])
    least = min(traffic.fixed, products["float32"].fixed)
    shares = _shares(times, device, least)
    host_link = _link(
        "memory" if device.synchronous else "host memory",
        fit_line(times["copy"]),
        shares,
        peer_to_peer=False,
        source=f"{source}: copies to memory that is there, pinned on a host",
    )
    link = host_link
    if "peer copy" in times:
        line = fit_line(times["peer copy"])
        source_of_link = f"{source}: copies between two devices"
        link = _link("peer", line, shares, device.peer_to_peer, source_of_link)
    return Calibration(
        _accelerator(products, traffic, shares, host_link, device, source),
        _host(times, traffic, shares, device, source),
        link,
        times,
    )


def _shares(times: Times, device: DeviceFacts, least: float) -> Shares:
    """Share out what the smallest operation takes."""
    if device.synchronous:
        return Shares(launch=least, wait=0.0, kernel=0.0)
    # least 11 µs, launch 5, wait 4: the kernel takes 2; but with a launch of
    # 12 it takes nothing, and launch is 11
    launch = min(_only(times, "launch"), least)
    wait = min(_only(times, "wait"), least - launch)
    return Shares(launch, wait, kernel=least - launch - wait)


def _accelerator(
    products: Mapping[str, Line],
    traffic: Line,
    shares: Shares,
    host_link: Link,
    device: DeviceFacts,
    source: str,
) -> Accelerator:
    single = products["float32"]
    kernel = f"{source}: the smallest operation, without launch and wait"
    if device.synchronous:
        kernel = "counted as launch_seconds: the host does the work itself"
    return Accelerator(
        name=device.name,
        flops_per_second={k: line.rate for k, line in products.items()},
        bytes_per_second=traffic.rate,
        memory_bytes=device.memory_bytes,
        achieved_flops=dict.fromkeys(products, 1.0),
        achieved_bytes=1.0,
        half_flops=(single.fixed - shares.total) * single.rate,
        half_bytes=(traffic.fixed - shares.total) * traffic.rate,
        kernel_seconds=shares.kernel,
        host_link=host_link,
        synchronous=device.synchronous,
        sources={
            "flops_per_second": f"{source}: products of square matrices",
            "bytes_per_second": f"{source}: sums and copies of vectors",
            "memory_bytes": "what the system says",
            "achieved_flops": WHOLE,
            "achieved_bytes": WHOLE,
            "half_flops": f"{source}: what products take besides",
            "half_bytes": f"{source}: what sums and copies take besides",
            "kernel_seconds": kernel,
            "host_link": f"{source}: copies",
        },
    )


def _host(
    times: Times,
    traffic: Line,
    shares: Shares,
    device: DeviceFacts,
    source: str,
) -> Host:
    """Return what issuing costs; in backward, less what the device takes."""
    backward = 1 / fit_line(times["backward"]).rate
    if device.synchronous:
        backward -= traffic.fixed - shares.launch
    return Host(
        name=device.name,
        launch_seconds=shares.launch,
        backward_launch_seconds=max(0.0, backward),
        view_seconds=_only(times, "view"),
        wait_seconds=shares.wait,
        pageable_bytes_per_second=fit_line(times["pageable copy"]).rate,
        sources={
            "launch_seconds": f"{source}: the smallest operation",
            "backward_launch_seconds": f"{source}: backward of a chain",
            "view_seconds": f"{source}: a view",
            "wait_seconds": f"{source}: waiting for nothing",
            "pageable_bytes_per_second": f"{source}: copies to new memory",
        },
    )


def _link(
    name: str, line: Line, shares: Shares, peer_to_peer: bool, source: str
) -> Link:
    return Link(
        name=name,
        bytes_per_second=line.rate,
        achieved=1.0,
        latency_seconds=max(0.0, line.fixed - shares.launch - shares.wait),
        peer_to_peer=peer_to_peer,
        sources={
            "bytes_per_second": source,
            "achieved": WHOLE,
            "latency_seconds": f"{source}, less launch and wait",
        },
    )


def _only(times: Times, kind: str) -> float:
    """Return the seconds of what was timed at one size."""
    ((_, seconds),) = times[kind]
    return seconds
