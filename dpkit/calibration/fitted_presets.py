"""From times to presets.

The fixed part of an operation's time is shared out among host and device, so
that the shares add up to it and none is counted twice::

    fixed = launch + wait + kernel + half / rate

    on a GPU, say: 12 µs = 5 (launch) + 4 (wait) + 2 (kernel) + 1
    on a CPU, whose host does the work itself, all of it is launch
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import geometric_mean

from dpkit.calibration.fitting import fit_line
from dpkit.calibration.stopwatch import Times
from dpkit.sim.hardware import Accelerator, Host, Link
from dpkit.units import show_seconds

WHOLE = "the rate is a measured one, so all of it is achieved"


@dataclass(frozen=True)
class DeviceFacts:
    """Facts of a device that need no timing."""

    name: str  # as it is sold
    memory_bytes: int
    synchronous: bool  # whether the host does the work itself
    peer_to_peer: bool = False  # whether others are reached without the host
    compute_capability: str = ""  # "9.0"; "" of what is none of NVIDIA's GPUs


@dataclass(frozen=True)
class Calibration:
    """The measurements, as presets."""

    accelerator: Accelerator
    host: Host  # what issuing work costs
    link: Link  # to another device where there is one, else to the host
    times: Times = field(repr=False)  # what the presets were fitted to
    spread: float = 0.0  # median over fastest repetition, less 1

    def __str__(self) -> str:
        device = self.accelerator
        host = self.host
        rows = {
            f"products, {dtype}": f"{rate / 1e9:.4g} GFLOP/s"
            for dtype, rate in device.flops_per_second.items()
        }
        for kind in ("fast", "other"):
            if multiples := getattr(device, f"{kind}_convolutions"):
                peak = device.flops_per_second["float32"]
                rate = peak * multiples["float32"]
                rows[f"{kind} convolutions"] = f"{rate / 1e9:.4g} GFLOP/s"
        rows["sums, copies"] = f"{device.bytes_per_second / 1e9:.4g} GB/s"
        link = f"link: {self.link.name}"
        rows[link] = f"{self.link.bytes_per_second / 1e9:.4g} GB/s"
        backward = show_seconds(host.backward_launch_seconds)
        launch = show_seconds(host.launch_seconds)
        rows["launch"] = f"{launch}, in backward {backward}"
        rows["kernel"] = show_seconds(device.kernel_seconds)
        lines = [f"  {name:<18} {value}" for name, value in rows.items()]
        return "\n".join([f"{device.name}:", *lines])


class _Conversion:
    """The lines fitted for one device; its launch, wait and kernel times."""

    def __init__(self, times: Times, device: DeviceFacts, source: str) -> None:
        self.times = times
        self.device = device
        self.source = source
        self.products = {
            kind.removeprefix("product "): fit_line(samples)
            for kind, samples in times.items()
            if kind.startswith("product ")
        }
        self.elementwise = fit_line(times["elementwise"])
        # What the smallest operation takes, issued and waited for.
        self.least = min(
            self.elementwise.fixed, self.products["float32"].fixed
        )
        self.launch = self.least
        self.wait = 0.0
        if not device.synchronous:
            # least 11 µs, launch 5, wait 4: the kernel takes 2; but with a
            # launch of 12 it takes nothing, and launch is 11
            self.launch = min(_only(times, "launch"), self.least)
            self.wait = min(_only(times, "wait"), self.least - self.launch)
        self.kernel = self.least - self.launch - self.wait

    def convolutions(self, kind: str) -> dict[str, float]:
        """Return the rates of a class, as multiples of those of products.

        What small ones cost besides is part of the rate. All sizes count as
        much, as logarithms.
        """
        # 75 million operations in 1.002 ms, of which 2 µs are the launch:
        # 75 GFLOP/s. Noise may leave nothing of the least: a tenth, then.
        found = {}
        for dtype, line in self.products.items():
            samples = self.times.get(f"{kind} convolution {dtype}", [])
            if samples:
                rates = (
                    size / max(seconds - self.least, seconds / 10)
                    for size, seconds in self._computing(samples)
                )
                found[dtype] = geometric_mean(rates) / line.rate
        return found

    def _computing(
        self, samples: Sequence[tuple[float, float]]
    ) -> Sequence[tuple[float, float]]:
        """Return the convolutions whose times tell a rate.

        A GPU computes while its host issues more. To issue the convolutions
        of a probe, with autograd, takes a host far longer than to issue a
        sum: 180 µs, not 8, measured with an H200. The smallest takes no
        longer than that, and what takes less than twice as long as the
        smallest tells little of the GPU.
        """
        if self.device.synchronous:
            return samples
        _, issuing = min(samples)
        longer = [(n, t) for n, t in samples if t > 2 * issuing]
        return longer or [max(samples)]

    def accelerator(self, host_link: Link) -> Accelerator:
        """Return the device; what is achieved is part of the rates."""
        single = self.products["float32"]
        source = self.source
        kernel = f"{source}: the smallest operation, without launch and wait"
        if self.device.synchronous:
            kernel = "counted as launch_seconds: the host does the work itself"
        return Accelerator(
            name=self.device.name,
            flops_per_second={k: v.rate for k, v in self.products.items()},
            bytes_per_second=self.elementwise.rate,
            memory_bytes=self.device.memory_bytes,
            achieved_flops=dict.fromkeys(self.products, 1.0),
            achieved_bytes=1.0,
            half_flops=(single.fixed - self.least) * single.rate,
            half_bytes=(self.elementwise.fixed - self.least)
            * self.elementwise.rate,
            kernel_seconds=self.kernel,
            host_link=host_link,
            synchronous=self.device.synchronous,
            fast_convolutions=self.convolutions("fast"),
            other_convolutions=self.convolutions("other"),
            compute_capability=self.device.compute_capability,
            sources={
                "flops_per_second": f"{source}: products of square matrices",
                "bytes_per_second": f"{source}: sums and copies of vectors",
                "memory_bytes": "what the system says",
                "compute_capability": "what the system says",
                "achieved_flops": WHOLE,
                "achieved_bytes": WHOLE,
                "half_flops": f"{source}: what products take besides",
                "half_bytes": f"{source}: what sums and copies take besides",
                "kernel_seconds": kernel,
                "host_link": f"{source}: copies",
                "fast_convolutions": f"{source}: 3×3, forward and backward",
                "other_convolutions": f"{source}: 1×1, and 3×3 of stride 2, "
                "forward and backward",
                "fused_attention": "not measured: half of the rate of "
                "products, in 16 bits",
            },
        )

    def host(self) -> Host:
        """Return what issuing costs."""
        backward = 1 / fit_line(self.times["backward"]).rate
        if self.device.synchronous:  # less what the device takes
            backward -= self.elementwise.fixed - self.launch
        source = self.source
        copies = f"{source}: copies, the host's memory not pinned"
        return Host(
            name=self.device.name,
            launch_seconds=self.launch,
            backward_launch_seconds=max(0.0, backward),
            view_seconds=_only(self.times, "view"),
            wait_seconds=self.wait,
            to_device_bytes_per_second=self._rate("copy to device"),
            from_device_bytes_per_second=self._rate("copy from device"),
            new_memory_bytes_per_second=self._rate("copy to new memory"),
            sources={
                "launch_seconds": f"{source}: the smallest operation",
                "backward_launch_seconds": f"{source}: backward of a chain",
                "view_seconds": f"{source}: a view",
                "wait_seconds": f"{source}: waiting for nothing",
                "to_device_bytes_per_second": copies,
                "from_device_bytes_per_second": copies,
                "new_memory_bytes_per_second": copies,
            },
        )

    def _rate(self, kind: str) -> float:
        """Return the rate of copies of a kind.

        Where the kind was not timed, as on a CPU, that of copies to new
        memory.
        """
        new = self.times["copy to new memory"]
        return fit_line(self.times.get(kind, new)).rate

    def link(self, name: str, *, kind: str, how: str, peers: bool) -> Link:
        """Return a link, over which copies of a kind went.

        Args:
            name: The link's name.
            kind: The kind of copies, a key of ``times``.
            how: What was timed, in words, as part of the source.
            peers: Whether devices copy to each other without the host.
        """
        line = fit_line(self.times[kind])
        source = f"{self.source}: {how}"
        return Link(
            name=name,
            bytes_per_second=line.rate,
            achieved=1.0,
            latency_seconds=max(0.0, line.fixed - self.launch - self.wait),
            peer_to_peer=peers,
            sources={
                "bytes_per_second": source,
                "achieved": WHOLE,
                "latency_seconds": f"{source}, less launch and wait",
            },
        )


def to_presets(times: Times, device: DeviceFacts, source: str) -> Calibration:
    """Turn what was timed into presets of a device, its host and its links.

    Args:
        times: By kind, each size with its seconds.
        device: What is known of the device without timing.
        source: What the presets name as the source of their numbers.
    """
    found = _Conversion(times, device, source)
    name = "memory" if device.synchronous else "host memory"
    how = "copies to memory that is there, pinned on a host"
    host_link = link = found.link(name, kind="copy", how=how, peers=False)
    if "peer copy" in times:
        how = "copies between two devices"
        link = found.link(
            "peer", kind="peer copy", how=how, peers=device.peer_to_peer
        )
    return Calibration(found.accelerator(host_link), found.host(), link, times)


def _only(times: Times, kind: str) -> float:
    ((_, seconds),) = times[kind]  # timed at one size
    return seconds
