"""The parts of a machine: accelerators, the links between them, their hosts.

A preset of each kind is a file in ``data/`` and its name in a table below. A
file keeps apart what the datasheet promises and the fraction of it that
programs achieve. Peaks are those of dense operands. A preset's ``name`` is
what ``configure`` calls it; its ``sources`` say where each number is from.
"""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field

from dpkit.sim.hardware.presets import check_numbers, shipped
from dpkit.units import check_known

DTYPES = ("float64", "float32", "tf32", "float16", "bfloat16", "float8")
# Where there is no rate for one of these, it is computed as float32 is.
AS_FLOAT32 = ("float64", "tf32", "float16", "bfloat16")
CONVOLUTIONS = ("fast_convolutions", "other_convolutions")
HALVES = ("float16", "bfloat16")
# The kernels of attention that presets may have a rate for, both directions.
ATTENTION_KINDS = (
    "flash",
    "flash backward",
    "efficient",
    "efficient backward",
    "cudnn",
    "cudnn backward",
)


@dataclass(frozen=True)
class Link:
    """What copies between devices pass over, in both directions at once.

    What is said of a library is assumed where it is not given: 2.5 µs and 0.9,
    as of NVLink 2 and 3. On PCI Express, steps of 1.6 µs were measured with
    peer access (``v100-pcie`` in ``book/_data/nccl_servers.json``). Without
    it, 8 cards took 2.6 µs and 3.4 µs (NVIDIA/nccl, issues 1530 and 1439).

    Example:
        >>> Link("x", bytes_per_second=-1, achieved=1, latency_seconds=0,
        ...      peer_to_peer=True)
        Traceback (most recent call last):
            ...
        ValueError: a rate must be positive (bytes_per_second: -1)
    """

    name: str
    _: KW_ONLY
    bytes_per_second: float  #: the datasheet's rate of one port, one direction
    achieved: float  #: the fraction of it that large copies reach
    latency_seconds: float  #: what each copy costs besides
    #: Whether devices reach each other; if not, all copies between them pass
    #: over the one path through the host.
    peer_to_peer: bool
    #: What a step takes in a ring that a library runs as one kernel
    #: (``plans.library_costs``).
    library_step_seconds: float = 2.5e-6
    #: The part of a copy's rate that such a ring reaches.
    library_share: float = 0.9
    sources: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_numbers(self)


@dataclass(frozen=True)
class Host:
    """What issuing work costs the host: eager PyTorch on a CPU.

    Example:
        >>> eager = HOSTS["eager"]
        >>> taken = eager.issuing(launches=3, views=2, in_backward=False)
        >>> f"{1e6 * taken:.0f} µs"  # 3 · 8 + 2 · 1.5
        '27 µs'
    """

    name: str
    #: The host's time for an operation of the forward pass.
    launch_seconds: float
    #: The host's time for an operation that autograd issues.
    backward_launch_seconds: float
    view_seconds: float  #: the host's time for a view, which launches nothing
    wait_seconds: float  #: the host's time for waiting on a device
    #: The rate of copies from memory that is not pinned.
    to_device_bytes_per_second: float
    from_device_bytes_per_second: float  #: the rate of copies to such memory
    #: The rate of copies to new memory, as by ``x.to("cpu")``, which the
    #: system hands out page by page.
    new_memory_bytes_per_second: float
    sources: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_numbers(self)

    def issuing(
        self, launches: float, views: float, in_backward: bool
    ) -> float:
        """Return the seconds in which it issues operations and views.

        Args:
            launches: How many operations.
            views: How many views.
            in_backward: Whether autograd issues the operations.
        """
        each = self.launch_seconds
        if in_backward:
            each = self.backward_launch_seconds
        return views * self.view_seconds + launches * each


@dataclass(frozen=True)
class Accelerator:
    """A device that computes.

    Example:
        >>> v100 = ACCELERATORS["v100-pcie"]
        >>> v100.flops_per_second["float32"], v100.achieved_flops["float32"]
        (14000000000000.0, 0.93)
    """

    name: str
    #: The datasheet's peak for each dtype, of ``DTYPES``. A dtype that is left
    #: out is computed as float32 is; but in float8 there are no products then.
    #: float8 stands for both kinds, with scales, added up in float32.
    flops_per_second: Mapping[str, float]
    bytes_per_second: float  #: the datasheet's bandwidth of its memory
    memory_bytes: int  #: the size of its memory
    #: The fraction of each peak that large products reach.
    achieved_flops: Mapping[str, float]
    #: The fraction of the bandwidth that large copies reach.
    achieved_bytes: float
    #: The work at which products reach half of their rate. Below it there is
    #: too little to fill the device. One number for all dtypes, right for
    #: float32; small products in the faster ones take longer than it says.
    half_flops: float
    #: The bytes at which traffic to memory reaches half of its rate.
    half_bytes: float
    kernel_seconds: float  #: what each operation costs the device besides
    #: The link to its host, or its name in ``LINKS``.
    host_link: str | Link
    #: Whether the host does the work itself, as a CPU does.
    synchronous: bool = False
    #: The rate of large convolutions for which there are algorithms with fewer
    #: multiplications than are counted, as a multiple of each peak: kernels of
    #: 3×3 or 5×5, stride 1, all channels joined. It may be more than one. A
    #: dtype that is left out goes at the rate of products.
    fast_convolutions: Mapping[str, float] = field(default_factory=dict)
    #: The rate of all other large convolutions, as a multiple of each peak.
    other_convolutions: Mapping[str, float] = field(default_factory=dict)
    #: The fraction of the peak of 16 bits that kernels of attention reach with
    #: long sequences and heads of 128, by the scores that they compute. Its
    #: keys are of ``ATTENTION_KINDS``. A kernel that is left out has half the
    #: rate of products: assumed. With heads of 64 kernels are slower than it
    #: says: by up to 1.5 times with cuDNN on an H100, 1.4 with the others.
    fused_attention: Mapping[str, float] = field(default_factory=dict)
    #: The features of a GPU, by NVIDIA's number, such as "9.0". It is "" for
    #: what is none of its GPUs, and where a file does not say.
    compute_capability: str = ""
    sources: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for given in ("flops_per_second", "achieved_flops", *CONVOLUTIONS):
            for dtype in getattr(self, given):
                if dtype not in DTYPES:
                    raise ValueError(
                        f"unknown dtype ({given}: {dtype!r}, "
                        f"known: {', '.join(DTYPES)})"
                    )
        for kind in self.fused_attention:
            check_known("fused_attention", kind, ATTENTION_KINDS)
        if "float32" not in self.flops_per_second:
            raise ValueError(
                "there must be a rate for float32 "
                f"(flops_per_second: {', '.join(self.flops_per_second)})"
            )
        if set(self.flops_per_second) != set(self.achieved_flops):
            raise ValueError(
                "rates and fractions must be of the same dtypes "
                f"(flops_per_second: {', '.join(self.flops_per_second)}; "
                f"achieved_flops: {', '.join(self.achieved_flops)})"
            )
        check_numbers(self)


LINKS = shipped(
    Link,
    "pcie3 pcie3-p2p pcie4 pcie5 nvlink1 nvlink2 nvlink3 nvlink4 nvlink5 "
    "ethernet10 ethernet25 ethernet100 "
    "infiniband200 infiniband400 infiniband800",
)
HOSTS = shipped(Host, "eager eager-modules eager-program cpu")
ACCELERATORS = shipped(
    Accelerator,
    "k80 p100 p40 v100 v100-pcie a100 h100 h200 b200 rtx4090 laptop-cpu",
)
