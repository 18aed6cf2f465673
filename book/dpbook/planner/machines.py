"""Machines as one rents them: eight GPUs, what joins them, and the network.

The network's rate is that of a whole machine, and each GPU has an eighth of
it. So a GPU of a p4d has a port of 50 Gbit/s.

Source:
    stas00/ml-engineering, network/README.md, commit 744d01e, for the networks
    of p4d, p5, p5en, p6-b200 and a3-megagpu; Amazon, Specifications for
    accelerated computing instances, for p3 and p4de; MicrosoftDocs/azure-docs,
    articles/virtual-machines/sizes/gpu-accelerated/includes, the summaries of
    ndma100v4 (commit 516167e) and ndh100v5 (commit 2467ea4). The memory is
    what the machine is sold with.
"""

from dataclasses import KW_ONLY, dataclass, replace

from dpkit.sim.hardware import ACCELERATORS, LINKS, Cluster, cluster

NODE = 8  # GPUs of a machine
GBIT = 1e9 / 8  # bytes


@dataclass(frozen=True)
class Machine:
    """A machine with eight GPUs.

    Example:
        >>> MACHINES["p4d.24xlarge"].cluster(2).network.name
        '50 Gbit/s, as ethernet100'
    """

    accelerator: str  #: a preset of ``ACCELERATORS``
    _: KW_ONLY
    #: The memory of a GPU as it is sold; 80 GB are taken as 80 GiB.
    gigabytes: int
    link: str  #: what joins its GPUs, a preset of ``LINKS``
    gigabits: int  #: the rate of its network, in Gbit/s
    #: The preset of ``LINKS`` whose latency its network has, and of whose
    #: rate it reaches the same part.
    network: str

    @property
    def short(self) -> str:
        """Its GPUs and their memory: "8 A100, 40 GB"."""
        return f"{NODE} {self.accelerator.upper()}, {self.gigabytes} GB"

    @property
    def options(self) -> str:
        """The options of ``dpkit torchrun`` for GPUs like these."""
        options = f"--accelerator {self.accelerator} --link {self.link}"
        preset = ACCELERATORS[self.accelerator]
        if preset.memory_bytes != self.gigabytes * 2**30:
            options += f" --memory {self.gigabytes}"
        return options

    def cluster(self, count: int) -> Cluster:
        """Return so many of these machines, joined by their network."""
        known = ACCELERATORS[self.accelerator]
        gpu = replace(known, memory_bytes=self.gigabytes * 2**30)
        share = self.gigabits / NODE
        port = LINKS[self.network]
        if port.bytes_per_second != share * GBIT:
            name = f"{share:g} Gbit/s, as {port.name}"
            port = replace(port, name=name, bytes_per_second=share * GBIT)
        return cluster(
            count * NODE, gpu, self.link, ranks_per_node=NODE, network=port
        )


MACHINES: dict[str, Machine] = {
    "p3.16xlarge": Machine(
        "v100", gigabytes=16, link="nvlink2", gigabits=25, network="ethernet25"
    ),
    "p4d.24xlarge": Machine(
        "a100",
        gigabytes=40,
        link="nvlink3",
        gigabits=400,
        network="ethernet100",
    ),
    "p4de.24xlarge": Machine(
        "a100",
        gigabytes=80,
        link="nvlink3",
        gigabits=400,
        network="ethernet100",
    ),
    "ND96amsr_A100_v4": Machine(
        "a100",
        gigabytes=80,
        link="nvlink3",
        gigabits=1600,
        network="infiniband200",
    ),
    "a3-megagpu-8g": Machine(
        "h100",
        gigabytes=80,
        link="nvlink4",
        gigabits=1600,
        network="ethernet100",
    ),
    "p5.48xlarge": Machine(
        "h100",
        gigabytes=80,
        link="nvlink4",
        gigabits=3200,
        network="infiniband400",
    ),
    "ND96isr_H100_v5": Machine(
        "h100",
        gigabytes=80,
        link="nvlink4",
        gigabits=3200,
        network="infiniband400",
    ),
    "p5en.48xlarge": Machine(
        "h200",
        gigabytes=141,
        link="nvlink4",
        gigabits=3200,
        network="infiniband400",
    ),
    "p6-b200.48xlarge": Machine(
        "b200",
        gigabytes=180,
        link="nvlink5",
        gigabits=3200,
        network="infiniband400",
    ),
}
