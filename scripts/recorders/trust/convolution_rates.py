"""Published and simulated images per second, and rates fitted to them.

``published`` is what a file in ``book/_data`` holds: tensorflow_2017.json or
resnet50_nvidia.json.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from dpbook.limits.comparisons import Comparison
from dpkit.least_squares import fit_two
from dpkit.sim.hardware import ACCELERATORS, Accelerator
from recorders.trust.convolutional import images_per_second

# Hardware of TensorFlow's table -> the preset, the name of its batch sizes.
HARDWARE = {
    "p100 DGX-1": ("p100", "batch_per_gpu"),
    "k80 GCE": ("k80", "batch_per_gpu_k80"),
}
BY_NCCL = ("alexnet", "vgg16")  # on the DGX-1; the rest by servers on the CPU
# Network -> (its rows, its images per second).
Measured = Mapping[str, tuple[int, float]]
STEP = 1.25  # by which a rate is changed to see what hangs on it


def with_rates(gpu: Accelerator, fast: float, other: float) -> Accelerator:
    """Return a GPU with other rates of convolutions in float32."""
    return replace(
        gpu,
        fast_convolutions={"float32": fast},
        other_convolutions={"float32": other},
    )


def one_gpu(published: Mapping[str, Any], hardware: str) -> Measured:
    """Return what one GPU did."""
    sizes = published[HARDWARE[hardware][1]]
    found = published["images_per_second"][hardware]
    return {name: (sizes[name], rates["1"]) for name, rates in found.items()}


class Parts(NamedTuple):
    """A step's seconds: rest + fast / its rate + other / its rate.

    The rates are the multiples of the peak that a preset holds.
    """

    rest: float
    fast: float
    other: float

    @classmethod
    def of(cls, network: str, rows: int, gpu: Accelerator) -> "Parts":
        """Return the parts of a step, from three simulated ones."""
        # fast / rate · (1 − 1/1.25) = seconds − those with 1.25 times the rate
        fast = gpu.fast_convolutions["float32"]
        other = gpu.other_convolutions["float32"]
        rates = ((fast, other), (STEP * fast, other), (fast, STEP * other))
        seconds, faster, others = (
            rows
            / images_per_second(
                network, rows, accelerator=with_rates(gpu, *pair)
            )
            for pair in rates
        )
        b, c = ((seconds - x) / (1 - 1 / STEP) for x in (faster, others))
        return cls(seconds - b - c, b * fast, c * other)


def parts(gpu: Accelerator, measured: Measured) -> dict[str, Parts]:
    """Return the parts of each network's step, near the rates that fit."""
    # An operation is bound by arithmetic at some rates and by memory at
    # others, so parts hold near the rates that they were found with.
    found: dict[str, Parts] = {}
    for _ in range(2):
        found = {
            name: Parts.of(name, rows, gpu)
            for name, (rows, _) in measured.items()
        }
        gpu = with_rates(gpu, *fit_rates(found, measured))
    return found


def fit_rates(
    steps: Mapping[str, Parts], measured: Measured
) -> tuple[float, float]:
    """Return the rates whose seconds have the least squared relative errors.

    One step of 2 + 3/fast + 4/other seconds takes 8, and another of
    2 + 6/fast + 4/other takes 9.5. The fast rate is 2, and the other is 8/9:
    3/2 + 4·9/8 = 6, and 6/2 + 4·9/8 = 7.5.
    """
    us = []
    vs = []
    rest = []
    for name, (rows, rate) in measured.items():
        seconds = rows / rate
        us.append(steps[name].fast / seconds)
        vs.append(steps[name].other / seconds)
        rest.append(1 - steps[name].rest / seconds)
    fast, other = fit_two(us, vs, totals=rest)
    return 1 / fast, 1 / other


def left_out(
    published: Mapping[str, Any], hardware: str
) -> list[tuple[tuple[float, float], Comparison]]:
    """Predict each network by rates that were fitted to the others.

    Each comparison has the rates, fast and other.
    """
    measured = one_gpu(published, hardware)
    gpu = ACCELERATORS[HARDWARE[hardware][0]]
    steps = parts(gpu, measured)
    found = []
    for name, (rows, rate) in measured.items():
        others = {k: v for k, v in measured.items() if k != name}
        rates = fit_rates(steps, others)
        predicted = images_per_second(
            name, rows, accelerator=with_rates(gpu, *rates)
        )
        row = _row(name, hardware, _alone(rows), predicted, rate)
        found.append((rates, row))
    return found


def one_gpu_comparisons(published: Mapping[str, Any]) -> list[Comparison]:
    """Compare presets as they are with TensorFlow's rows of one GPU.

    The K80's rates of convolutions are fitted to these rows.
    """
    found = []
    for hardware, (preset, _) in HARDWARE.items():
        kind = "fitted" if preset == "k80" else "unseen"
        for name, (rows, rate) in one_gpu(published, hardware).items():
            predicted = images_per_second(name, rows, accelerator=preset)
            row = _row(name, hardware, _alone(rows), predicted, rate, kind)
            found.append(row)
    return found


def scaling_comparisons(
    published: Mapping[str, Any],
    hardware: str,
    gpus: Mapping[str, str | Accelerator] | None = None,
    **wiring: Any,
) -> list[Comparison]:
    """Compare what k GPUs do with k times what one does: 0.95 of it, say.

    Between a server and a GPU all copies pass over the host's PCIe.

    Args:
        published: What the file in ``book/_data`` holds.
        hardware: A name in ``HARDWARE``.
        gpus: Network -> its GPU, where it is another than that of the
            hardware.
        **wiring: Settings of :func:`dpkit.sim.machine` that join the GPUs in
            another way.
    """
    found = []
    for name, rates in published["images_per_second"][hardware].items():
        rows = published[HARDWARE[hardware][1]][name]
        gpu = gpus[name] if gpus else HARDWARE[hardware][0]
        machine = _machine(name, hardware) | {"accelerator": gpu} | wiring
        one = images_per_second(name, rows, accelerator=gpu)
        for k in (2, 4, 8):
            many = images_per_second(name, rows, k, **machine)
            measured = rates[str(k)] / k / rates["1"]
            where = f"{k} GPUs, batch {rows} each"
            row = _row(name, hardware, where, many / k / one, measured)
            found.append(replace(row, unit="of k times one", work="scaling"))
    return found


def _machine(name: str, hardware: str) -> dict[str, Any]:
    """Return how the GPUs are joined.

    A DGX-1 has four paths to the host, one for two GPUs. How many the K80s
    had is not known: one.
    """
    if hardware == "k80 GCE":
        return {"link": "pcie3", "server": True}
    server = name not in BY_NCCL
    return {"link": "nvlink1", "server": server, "devices_per_switch": 2}


# How eight K80s may be joined to the host -> that as changes of a machine.
WIRINGS = {
    "one path for all": {},
    "a path for each two": {"devices_per_switch": 2},
}


def k80_points(published: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Return how far off the shares of several K80s are, on average.

    They are counted in hundredths of k times one, for each wiring, with the
    preset and with rates to which the network itself was not fitted.
    """
    hardware = "k80 GCE"
    gpu = ACCELERATORS[HARDWARE[hardware][0]]
    others = {
        row.subject: with_rates(gpu, *rates)
        for rates, row in left_out(published, hardware)
    }
    return {
        wiring: {
            rates: _points(
                scaling_comparisons(published, hardware, gpus, **machine)
            )
            for rates, gpus in (("preset", None), ("left out", others))
        }
        for wiring, machine in WIRINGS.items()
    }


def _points(rows: Sequence[Comparison]) -> float:
    misses = (abs(row.predicted - row.measured) for row in rows)
    return 100 * sum(misses) / len(rows)


# Hardware and precision of NVIDIA's table -> the preset, rows, whether mixed.
# Rows: NVIDIA/DeepLearningExamples, commit 097c7ff,
# PyTorch/Classification/ConvNets/configs.yml.
NVIDIA = {
    ("V100", "FP32"): ("v100", 112, False),
    ("V100", "mixed"): ("v100", 256, True),
    ("A100", "TF32"): ("a100", 256, False),
    ("A100", "mixed"): ("a100", 256, True),
}


def nvidia_scaling(published: Mapping[str, Any]) -> list[Comparison]:
    """Compare what 8 GPUs do with 8 times what one does."""
    found = []
    for (hardware, precision), (preset, rows, mixed) in NVIDIA.items():
        rates = published["images_per_second"][hardware][precision]
        machine = {
            "mixed": mixed,
            "accelerator": preset,
            "link": {"v100": "nvlink2", "a100": "nvlink3"}[preset],
        }
        one, many = (
            images_per_second("resnet50 v1.5", rows, k, **machine)
            for k in (1, 8)
        )
        shares = many / 8 / one, rates["8"] / 8 / rates["1"]
        where = f"{hardware} {precision}", f"8 GPUs, batch {rows} each"
        row = _row("resnet50 v1.5", *where, *shares)
        found.append(replace(row, unit="of k times one", work="scaling"))
    return found


def nvidia_comparisons(published: Mapping[str, Any]) -> list[Comparison]:
    """Compare presets with NVIDIA's ResNet-50 on one GPU."""
    found = []
    for (hardware, precision), (preset, rows, mixed) in NVIDIA.items():
        rate = published["images_per_second"][hardware][precision]["1"]
        predicted = images_per_second(
            "resnet50 v1.5", rows, mixed=mixed, accelerator=preset
        )
        where = f"{hardware} {precision}"
        row = _row("resnet50 v1.5", where, _alone(rows), predicted, rate)
        found.append(row)
    return found


def _alone(rows: int) -> str:
    return f"1 GPU, batch {rows}"


def _row(
    name: str,
    hardware: str,
    where: str,
    predicted: float,
    rate: float,
    kind: str = "unseen",
) -> Comparison:
    return Comparison(
        subject=name,
        hardware=hardware,
        configuration=where,
        unit="images/s",
        predicted=predicted,
        measured=rate,
        kind=kind,
        work="convolutions",
    )
