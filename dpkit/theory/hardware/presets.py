"""The numbers of the presets, each with its source beside it.

Field -> (value, source). A source names a document, or says "fitted to" and
names a measurement, or says "assumed" and why. What the fields mean, and the
presets made of these tables, are in ``dpkit.theory.hardware``.

Peaks are those of dense operands, rates of links those of one direction.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

GB = 1e9
GIB = 2**30
TERA = 1e12
MICRO = 1e-6

Fields = Mapping[str, tuple[Any, str]]

# Sources that several numbers share.
TIMINGS = "zzc0721/torch-performance-test-data"
ENGINEERING = "stas00/ml-engineering, compute/accelerator/README.md"
NETWORK = "stas00/ml-engineering, network/README.md"
KERNELS = "te42kyfo/gpu-benches, gpu-small-kernels"
DEVICES = "chsasank/device-benchmarks, README"
SOLD = "the size it is sold as, which is about as many GiB as GB"
NOTEBOOK = (
    "fitted to 50 products of 4000×4000 in 0.493 s, in the notebook "
    "Multi-GPU training, on what is taken for a V100"
)
RAMP = (
    "fitted to float32 products: 4 µs at the peak; cuBLAS takes 4.1 µs for "
    "128×128, 7.2 for 256×256 where it reaches 17 TFLOP/s "
    "(JuliaGPU/GemmKernels.jl, pull request 169), PyTorch 187 to 203 for "
    "1024×1024 on V100, 57 on H100, 47 on RTX 4090 "
    f"({TIMINGS}, issues 140, 79 and 78)"
)
TINY = (
    f"fitted to {KERNELS}: with half_bytes 2.9 µs for the smallest, where "
    "V100 takes 2.3 to 3.5, A100 2.7 to 5.0, a Hopper device 2.4 to 3.2"
)
CALIBRATED = (
    "python -m dpkit calibrate on two cores of an AMD EPYC, PyTorch 2.15, "
    "2026-11-20"
)
AS_V100 = "assumed: as many microseconds as a V100's, nothing was found"


def peaks(
    float64: float,
    float32: float,
    float16: float,
    bfloat16: float,
    tf32: float | None = None,
) -> dict[str, float]:
    """Return dtype -> rate, from TFLOP/s.

    Example:
        >>> peaks(7, 14, 112, 14)["float16"]
        112000000000000.0
    """
    rates = fractions(float64, float32, float16, bfloat16, tf32)
    return {dtype: rate * TERA for dtype, rate in rates.items()}


def fractions(
    float64: float,
    float32: float,
    float16: float,
    bfloat16: float,
    tf32: float | None = None,
) -> dict[str, float]:
    """Return dtype -> fraction of the peak.

    Example:
        >>> fractions(0.9, 0.9, 0.8, 0.7)["float16"]
        0.8
    """
    found = {
        "float64": float64,
        "float32": float32,
        "tf32": tf32,
        "float16": float16,
        "bfloat16": bfloat16,
    }
    return {dtype: x for dtype, x in found.items() if x is not None}


def small(peak: float, bandwidth: float, assumed: str = "") -> Fields:
    """Return what small operations cost: half_flops and the like.

    A device is taken to reach half of its rate of arithmetic with 4 µs of
    work at its float32 peak, half of its rate of memory with 1.2 µs at its
    bandwidth.

    Args:
        peak: TFLOP/s in float32.
        bandwidth: GB/s of memory.
        assumed: The source, where nothing was fitted for the device.

    Example:
        >>> small(peak=14, bandwidth=900)["kernel_seconds"][0]
        1.5e-06
    """
    return {
        "half_flops": (peak * TERA * 4 * MICRO, assumed or RAMP),
        "half_bytes": (bandwidth * GB * 1.2 * MICRO, assumed or TINY),
        "kernel_seconds": (1.5 * MICRO, assumed or TINY),
    }


ACCELERATORS: Mapping[str, Fields] = {
    "k80": {
        "flops_per_second": (
            peaks(1.455, 4.37, 4.37, 4.37),
            "NVIDIA Tesla K80 datasheet: half of 2.91 and 8.74 TFLOP/s, at "
            "boost clock; half precision is computed in float32",
        ),
        "bytes_per_second": (
            240 * GB,
            "NVIDIA Tesla K80 datasheet: half of 480 GB/s",
        ),
        "memory_bytes": (12 * GIB, SOLD + ", half of 24"),
        "achieved_flops": (
            fractions(0.75, 0.63, 0.63, 0.63),
            "cuBLAS 7.5 on a K40, of the same generation: 3.1 to 3.3 of 5.04 "
            "and 1.26 of 1.68 TFLOP/s (clMathLibraries/clBLAS, "
            "doc/performance); assumed for half precision",
        ),
        "achieved_bytes": (
            0.75,
            "BabelStream, results/v2.0, K80.txt: copy 180 GB/s",
        ),
        **small(peak=4.37, bandwidth=240, assumed=AS_V100),
        "host_link": ("pcie3", "NVIDIA Tesla K80 datasheet"),
    },
    "p100": {
        "flops_per_second": (
            peaks(5.3, 10.6, 21.2, 10.6),
            "NVIDIA Tesla P100 datasheet, SXM2; bfloat16 is computed in "
            "float32",
        ),
        "bytes_per_second": (732 * GB, "NVIDIA Tesla P100 datasheet, SXM2"),
        "memory_bytes": (16 * GIB, SOLD),
        "achieved_flops": (
            fractions(0.90, 0.90, 0.42, 0.56),
            f"{TIMINGS}, issue 180: 9.50, 8.82 and 5.99 TFLOP/s in float32, "
            "float16 and bfloat16; float64 assumed as float32",
        ),
        "achieved_bytes": (
            0.76,
            "STREAM in CUDA by mohamso, README: triad 557 GB/s",
        ),
        **small(peak=10.6, bandwidth=732, assumed=AS_V100),
        "host_link": ("pcie3", "NVIDIA Tesla P100 datasheet"),
    },
    "p40": {
        "flops_per_second": (
            peaks(0.367, 11.76, 11.76, 11.76),
            "NVIDIA Tesla P40 datasheet: 12 TFLOP/s, which 3840 cores at the "
            "boost clock of 1.531 GHz make 11.76; a 32nd of it in float64; "
            "half precision is computed in float32",
        ),
        "bytes_per_second": (346 * GB, "NVIDIA Tesla P40 datasheet"),
        "memory_bytes": (24 * GIB, SOLD),
        "achieved_flops": (
            fractions(0.86, 0.86, 0.85, 0.45),
            f"{TIMINGS}, database.md: 10.07, 10.02 and 5.26 TFLOP/s in "
            "float32, float16 and bfloat16; float64 assumed as float32",
        ),
        "achieved_bytes": (
            0.87,
            "clpeak, pull request 119, Tesla_P40.log: 301 GB/s, reading",
        ),
        **small(peak=11.76, bandwidth=346, assumed=AS_V100),
        "host_link": ("pcie3", "NVIDIA Tesla P40 datasheet"),
    },
    "v100": {
        "flops_per_second": (
            peaks(7.8, 15.7, 125, 15.7),
            "NVIDIA V100 datasheet, SXM2; bfloat16 is computed in float32",
        ),
        "bytes_per_second": (900 * GB, "NVIDIA V100 datasheet, SXM2"),
        "memory_bytes": (16 * GIB, SOLD),
        "achieved_flops": (
            fractions(0.92, 0.92, 0.78, 0.68),
            f"{TIMINGS}, issue 140: 14.51, 97.36 and 10.65 TFLOP/s in "
            "float32, float16 and bfloat16; float64 assumed as float32",
        ),
        "achieved_bytes": (
            0.87,
            f"{KERNELS}/v100.txt: the durations grow by V / 779 GB/s",
        ),
        **small(peak=15.7, bandwidth=900),
        "host_link": ("pcie3", "NVIDIA V100 datasheet"),
    },
    "v100-pcie": {
        "flops_per_second": (
            peaks(7.0, 14.0, 112, 14.0),
            "NVIDIA V100 datasheet, PCIe; bfloat16 is computed in float32",
        ),
        "bytes_per_second": (900 * GB, "NVIDIA V100 datasheet, PCIe"),
        "memory_bytes": (16 * GIB, SOLD),
        "achieved_flops": (
            fractions(0.93, 0.93, 0.78, 0.68),
            f"float32: {NOTEBOOK}; float64 assumed as float32, float16 and "
            "bfloat16 as v100's",
        ),
        "achieved_bytes": (
            0.87,
            f"{KERNELS}/v100.txt: the durations grow by V / 779 GB/s",
        ),
        **small(peak=14.0, bandwidth=900),
        "host_link": ("pcie3", "NVIDIA V100 datasheet"),
    },
    "a100": {
        "flops_per_second": (
            peaks(19.5, 19.5, 312, 312, tf32=156),
            "NVIDIA A100 datasheet, SXM 80 GB, float64 on tensor cores; "
            f"{ENGINEERING}",
        ),
        "bytes_per_second": (
            2039 * GB,
            f"NVIDIA A100 datasheet, SXM 80 GB; {ENGINEERING}",
        ),
        "memory_bytes": (80 * GIB, SOLD),
        "achieved_flops": (
            fractions(0.70, 0.98, 0.83, 0.85, tf32=0.74),
            f"{TIMINGS}, database.md: 19.18, 258.7 and 264.5 TFLOP/s in "
            "float32, float16 and bfloat16; float64 13.7 "
            "(bewantbe/busy-gemm-benchmark, README); tf32 116 "
            "(mli/transformers-benchmarks, README)",
        ),
        "achieved_bytes": (
            0.84,
            "BabelStream on Tursa, README by aturner-epcc: copy 1709 GB/s",
        ),
        **small(peak=19.5, bandwidth=2039),
        "host_link": ("pcie4", "NVIDIA A100 datasheet"),
    },
    "h100": {
        "flops_per_second": (
            peaks(67, 67, 989, 989, tf32=494.5),
            "NVIDIA H100 datasheet, SXM, halved where it counts sparse "
            f"operands, float64 on tensor cores; {ENGINEERING}",
        ),
        "bytes_per_second": (
            3350 * GB,
            f"NVIDIA H100 datasheet, SXM; {ENGINEERING}",
        ),
        "memory_bytes": (80 * GIB, SOLD),
        "achieved_flops": (
            fractions(0.85, 0.77, 0.77, 0.81, tf32=0.81),
            f"{TIMINGS}, issue 79: 51.9, 402, 760 and 798 TFLOP/s in "
            "float32, tf32, float16 and bfloat16; float64 55 to 59 in HPL "
            "(glennklockwood.com, garden, H100)",
        ),
        "achieved_bytes": (
            0.87,
            "Azure/AI-benchmarking-guide, ND_H100_v5_results.md: copy "
            "2.90 TB/s",
        ),
        **small(peak=67, bandwidth=3350),
        "host_link": ("pcie5", "NVIDIA H100 datasheet"),
    },
    "h200": {
        "flops_per_second": (
            peaks(67, 67, 989, 989, tf32=494.5),
            "NVIDIA H200 datasheet, SXM, halved where it counts sparse "
            f"operands, float64 on tensor cores; {ENGINEERING}",
        ),
        "bytes_per_second": (
            4800 * GB,
            f"NVIDIA H200 datasheet, SXM; {ENGINEERING}",
        ),
        "memory_bytes": (141 * GIB, SOLD),
        "achieved_flops": (
            fractions(0.85, 0.77, 0.77, 0.80, tf32=0.81),
            f"{TIMINGS}, issue 45: 51.3, 759 and 790 TFLOP/s in float32, "
            "float16 and bfloat16; float64 and tf32 assumed as h100's",
        ),
        "achieved_bytes": (
            0.84,
            "Azure/AI-benchmarking-guide, ND_H200_v5_results.md: copy "
            "4.01 TB/s",
        ),
        **small(peak=67, bandwidth=4800),
        "host_link": ("pcie5", "NVIDIA H200 datasheet"),
    },
    "rtx4090": {
        "flops_per_second": (
            peaks(1.29, 82.6, 165.2, 165.2, tf32=82.6),
            "NVIDIA Ada GPU architecture whitepaper, RTX 4090, accumulating "
            "in float32",
        ),
        "bytes_per_second": (
            1008 * GB,
            "NVIDIA Ada GPU architecture whitepaper, RTX 4090",
        ),
        "memory_bytes": (24 * GIB, SOLD),
        "achieved_flops": (
            fractions(0.95, 0.65, 1.0, 1.0, tf32=1.0),
            f"{TIMINGS}, issue 78: 53.8, 85.7, 168 and 165 TFLOP/s in "
            "float32, tf32, float16 and bfloat16, at clocks above the "
            "datasheet's; float64 assumed (vectors reach 1.29: clpeak, "
            "issue 106)",
        ),
        "achieved_bytes": (0.90, f"{DEVICES}: copy 912 GB/s"),
        "half_flops": (82.6 * TERA * 4 * MICRO, RAMP),
        "half_bytes": (
            1008 * GB * 0.6 * MICRO,
            f"fitted to {KERNELS}/l40.txt, of the same generation",
        ),
        "kernel_seconds": (
            1.0 * MICRO,
            f"fitted to {KERNELS}/l40.txt, of the same generation: "
            "1.6 µs a kernel at 64 kB",
        ),
        "host_link": ("pcie4", "NVIDIA Ada GPU architecture whitepaper"),
    },
    "laptop-cpu": {
        "flops_per_second": (
            peaks(0.288, 0.576, 0.576, 0.576),
            "AMD Ryzen 5 4600HS (WikiChip): 6 cores at 3.0 GHz, 32 float32 "
            "operations a cycle in AVX2; half precision computed in float32",
        ),
        "bytes_per_second": (
            51.2 * GB,
            "AMD Ryzen 5 4600HS (WikiChip): two channels of DDR4-3200",
        ),
        "memory_bytes": (16 * GIB, "assumed: a usual size"),
        "achieved_flops": (
            fractions(0.69, 0.69, 0.35, 0.35),
            f"{DEVICES}: 0.4 TFLOP/s in float32; float64 assumed "
            "as float32, half precision assumed to convert as long again",
        ),
        "achieved_bytes": (0.43, f"{DEVICES}: copy 22 GB/s"),
        "half_flops": (
            1e6,
            "assumed: one core with AVX2 reaches half of its rate near 50 "
            "rows, six share more",
        ),
        "half_bytes": (1e4, "assumed: small tensors stay in the cache"),
        "kernel_seconds": (
            1.0 * MICRO,
            "pytorch/pytorch, issue 41383: a product of two elements takes "
            "about 2 µs, half of it in Python",
        ),
        "host_link": ("pcie3", "assumed: it has no need of one"),
        "synchronous": (True, "a CPU computes where it is called"),
    },
}

LINKS: Mapping[str, Fields] = {
    "pcie3": {
        "bytes_per_second": (
            15.75 * GB,
            "PCI Express 3.0, 16 lanes of 8 GT/s, 128 of each 130 bits",
        ),
        "achieved": (
            0.83,
            "jdh4/della-gpu-A100, README: 13.1 GB/s pinned; about 13 in the "
            "notebook Multi-GPU training",
        ),
        "latency_seconds": (
            13 * MICRO,
            "wohlbier/gpu-micro, README: 13.5 µs between two cards without "
            "peer access",
        ),
        "peer_to_peer": (False, "assumed: cards of a plain server"),
    },
    "pcie4": {
        "bytes_per_second": (
            31.5 * GB,
            "PCI Express 4.0, 16 lanes of 16 GT/s, 128 of each 130 bits",
        ),
        "achieved": (
            0.83,
            "NVIDIA/nvbandwidth, issue 15: 25.6 and 26.8 GB/s pinned",
        ),
        "latency_seconds": (13 * MICRO, "assumed as pcie3's"),
        "peer_to_peer": (False, "assumed: cards of a plain server"),
    },
    "pcie5": {
        "bytes_per_second": (
            63.0 * GB,
            "PCI Express 5.0, 16 lanes of 32 GT/s, 128 of each 130 bits",
        ),
        "achieved": (
            0.83,
            "Azure/AI-benchmarking-guide, ND_H200_v5_results.md: 52 GB/s",
        ),
        "latency_seconds": (13 * MICRO, "assumed as pcie3's"),
        "peer_to_peer": (False, "assumed: cards of a plain server"),
    },
    "nvlink1": {
        "bytes_per_second": (80 * GB, f"{NETWORK}: 4 links of a P100"),
        "achieved": (0.9, "assumed as nvlink3's: no measurement found"),
        "latency_seconds": (3 * MICRO, "assumed as nvlink3's"),
        "peer_to_peer": (True, "what NVLink is for"),
    },
    "nvlink2": {
        "bytes_per_second": (150 * GB, f"{NETWORK}: 6 links of a V100"),
        "achieved": (
            0.97,
            "wohlbier/gpu-micro, README, DGX-2: 145.6 GB/s",
        ),
        "latency_seconds": (
            2.3 * MICRO,
            "wohlbier/gpu-micro, README, DGX-2: 2.3 to 2.7 µs",
        ),
        "peer_to_peer": (True, "what NVLink is for"),
    },
    "nvlink3": {
        "bytes_per_second": (300 * GB, f"{NETWORK}: 12 links of an A100"),
        "achieved": (
            0.91,
            "LLMServe/DistServe, issue 3: 269 to 275 GB/s among 8 A100",
        ),
        "latency_seconds": (3.3 * MICRO, "LLMServe/DistServe, issue 3"),
        "peer_to_peer": (True, "what NVLink is for"),
    },
    "nvlink4": {
        "bytes_per_second": (450 * GB, f"{NETWORK}: 18 links of an H100"),
        "achieved": (0.84, "NVIDIA/nccl, issue 1264: 376 GB/s"),
        "latency_seconds": (2.8 * MICRO, "assumed as nvlink2's and 3's mean"),
        "peer_to_peer": (True, "what NVLink is for"),
    },
    "ethernet25": {
        "bytes_per_second": (25 / 8 * GB, "25 Gbit/s, its name"),
        "achieved": (
            0.94,
            "1448 of each 1538 bytes are TCP's payload at frames of 1500; "
            "16 streams reach 96.4 of 100 Gbit/s (esnet/iperf, issue 286)",
        ),
        "latency_seconds": (
            30 * MICRO,
            "assumed: 23 µs one way in UDP (Mellanox/sockperf, issue 136), "
            "35 µs in TCP (MicrosoftDocs/azure-docs, issue 13499)",
        ),
        "peer_to_peer": (True, "assumed: one port for each device"),
    },
    "ethernet100": {
        "bytes_per_second": (100 / 8 * GB, "100 Gbit/s, its name"),
        "achieved": (
            0.94,
            "1448 of each 1538 bytes are TCP's payload at frames of 1500; "
            "16 streams reach 96.4 of 100 Gbit/s (esnet/iperf, issue 286)",
        ),
        "latency_seconds": (
            30 * MICRO,
            "assumed: 23 µs one way in UDP (Mellanox/sockperf, issue 136), "
            "35 µs in TCP (MicrosoftDocs/azure-docs, issue 13499)",
        ),
        "peer_to_peer": (True, "assumed: one port for each device"),
    },
}

HOSTS: Mapping[str, Fields] = {
    "eager": {
        "launch_seconds": (
            8 * MICRO,
            "flagos-ai/Torch-FL, pull request 27: 8 µs to submit a sum of "
            "512×512; flagos-ai/FlagGems, issue 4812: about 7 µs",
        ),
        "backward_launch_seconds": (
            5 * MICRO,
            "assumed: as launch_seconds less what Python takes, which issues "
            "none of it",
        ),
        "view_seconds": (
            1.5 * MICRO,
            "assumed: about what PyTorch takes for one besides launching",
        ),
        "wait_seconds": (
            5 * MICRO,
            "fitted to flagos-ai/Torch-FL, pull request 27: 17 µs with "
            "waiting, less 8 of launching and a kernel's 4",
        ),
        "pageable_bytes_per_second": (
            1.31 * GB,
            "fitted to a copy of 3.2 GB to new memory of the CPU in 2.445 s, "
            "in the notebook Multi-GPU training",
        ),
    },
    "eager-fast": {
        "launch_seconds": (
            4 * MICRO,
            f"assumed: 2.4 µs from kernel to kernel ({KERNELS}/"
            "h200.txt), and PyTorch's own 1 to 1.5 µs with nothing to launch",
        ),
        "backward_launch_seconds": (4 * MICRO, "assumed as launch_seconds"),
        "view_seconds": (
            0.9 * MICRO,
            "fitted to PyTorch 2.15 on one core of an AMD EPYC: 0.9 µs with "
            "gradient, 0.6 without",
        ),
        "wait_seconds": (4 * MICRO, "assumed: a little less than eager's"),
        "pageable_bytes_per_second": (1.31 * GB, "assumed as eager's"),
    },
    "cpu": {
        "launch_seconds": (
            1.4 * MICRO,
            f"{CALIBRATED}: 1.40 to 1.51 µs, with what the device takes",
        ),
        "backward_launch_seconds": (
            2.0 * MICRO,
            f"{CALIBRATED}: 2.03 to 2.16 µs",
        ),
        "view_seconds": (1.0 * MICRO, f"{CALIBRATED}: 0.94 to 1.00 µs"),
        "wait_seconds": (
            0.0,
            "the host of a CPU does the work itself, and waits for none",
        ),
        "pageable_bytes_per_second": (
            34 * GB,
            f"{CALIBRATED}: copies to new memory, 34 to 39 GB/s",
        ),
    },
}
