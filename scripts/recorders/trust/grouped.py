"""Networks with convolutions in groups, as published and as simulated.

A group of a ResNeXt has several channels. A group of an EfficientNet has
one: the convolution is depthwise. The record ``grouped_nvidia`` has what was
measured. Three things are simulated as for ResNet-50: each batch is a step,
the optimizer is SGD (the EfficientNets had RMSprop), and no memory format has
an effect.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from dpbook.limits.comparisons import Comparison
from recorders.trust.convolutional import images_per_second

GROUPED = "grouped convolutions"
DEPTHWISE = "depthwise convolutions"
# Network -> the class of work of its images per second.
WORK = {
    "resnext101-32x4d": GROUPED,
    "se-resnext101-32x4d": GROUPED,
    "efficientnet-b0": DEPTHWISE,
    "efficientnet-b4": DEPTHWISE,
}
MACHINES = {
    "V100": {"accelerator": "v100", "link": "nvlink2"},
    "A100": {"accelerator": "a100", "link": "nvlink3"},
}


class Case(NamedTuple):
    """What was measured: images per second by the number of GPUs."""

    network: str
    hardware: str
    precision: str
    rows: int  # images on each GPU
    rates: Mapping[str, float]

    def simulated(self, num_devices: int) -> float:
        """Return the simulated images per second."""
        mixed = self.precision == "mixed"
        machine: dict[str, Any] = MACHINES[self.hardware]
        return images_per_second(
            self.network, self.rows, num_devices, mixed, **machine
        )

    def row(
        self, where: str, unit: str, values: tuple[float, float], work: str
    ) -> Comparison:
        """Return a comparison of two values, predicted and measured.

        Args:
            where: What tells the case from its neighbours, such as the batch.
            unit: That of both values.
            values: What was predicted, and what was measured.
            work: The class of work.
        """
        hardware = f"{self.hardware} {self.precision}"
        names = self.network, hardware, where, unit
        return Comparison(*names, *values, "unseen", work)


def cases(published: Mapping[str, Any]) -> Iterator[Case]:
    """Yield what the record holds."""
    for network, by_hardware in published["training"].items():
        for hardware, by_precision in by_hardware.items():
            for precision, found in by_precision.items():
                sizes = found["batch"], found["images_per_second"]
                yield Case(network, hardware, precision, *sizes)


def one_gpu_comparisons(published: Mapping[str, Any]) -> Iterator[Comparison]:
    """Compare the images per second of one GPU."""
    for case in cases(published):
        where = f"1 GPU, batch {case.rows}"
        values = case.simulated(1), case.rates["1"]
        yield case.row(where, "images/s", values, WORK[case.network])


def scaling_comparisons(published: Mapping[str, Any]) -> Iterator[Comparison]:
    """Compare what 8 GPUs do with 8 times what one does."""
    for case in cases(published):
        where = f"8 GPUs, batch {case.rows} each"
        predicted = case.simulated(8) / 8 / case.simulated(1)
        measured = case.rates["8"] / 8 / case.rates["1"]
        values = predicted, measured
        yield case.row(where, "of k times one", values, "scaling")
