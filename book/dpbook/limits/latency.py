"""The latency of one image: what a host costs where a device has little to do.

The networks are those whose latencies ``book/_data/efficientnet_nvidia.json``
holds. With one image at a time, the device waits for the host all the time.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn

from dpkit import Timer, devices, sim
from dpkit.sim.clock import Span

SIDES = {"efficientnet_b0": 224, "efficientnet_b4": 380}  # of an image


def published_seconds(
    path: str | Path, by_rate: bool = False
) -> dict[tuple[str, bool], float]:
    """Return the seconds of one image on an A100, as they were published.

    A few slow images raise the mean latency, and hardly change the rate.

    Args:
        path: That of ``book/_data/efficientnet_nvidia.json``.
        by_rate: Whether they are one over the mean images a second. If not,
            they are the mean latencies.

    Returns:
        The seconds by network and by whether it computes in mixed precision;
        if not, in TF32. So a key has the first two arguments of
        ``image_seconds``.
    """
    record = json.loads(Path(path).read_text(encoding="utf-8"))
    means = record["images_per_second" if by_rate else "mean_latency_ms"]
    return {
        (network, precision == "mixed"): 1 / mean if by_rate else mean / 1e3
        for precision, of_networks in means["A100"].items()
        for network, mean in of_networks.items()
    }


def image_seconds(network: str, mixed: bool, host: str) -> float:
    """Return the simulated seconds of one image, forward, on an A100.

    Args:
        network: A name in ``SIDES``.
        mixed: Whether autocast computes in float16 where it may.
        host: A preset.

    Example:
        Published are a mean latency of 9.33 ms, and 130 images a second:

        >>> from dpbook.limits.latency import image_seconds
        >>> seconds = image_seconds("efficientnet_b0", False, "eager-program")
        >>> f"{1e3 * seconds:.1f} ms"
        '7.4 ms'
    """
    with sim.machine(accelerator="a100", link="nvlink3", host=host):
        net, image = _network_and_image(network)
        with _inference(mixed):
            net(image)
        with Timer(devices(1, "sim")) as timer, _inference(mixed):
            net(image)
    return timer.seconds


def image_launches(network: str) -> tuple[int, int]:
    """Return how many kernels and views the forward of one image has.

    ``network`` is a name in ``SIDES``.
    """
    with sim.machine(accelerator="a100", link="nvlink3"):
        net, image = _network_and_image(network)
        with _inference(mixed=False), sim.trace() as timeline:
            net(image)
    kernels = _count(timeline.spans, "compute")
    return kernels, _count(timeline.spans, "launch") - kernels


def _network_and_image(network: str) -> tuple[nn.Module, Tensor]:
    """Return a network on device 0, with any values, and an image."""
    # Here, not above: nothing else of this chapter needs torchvision.
    from torchvision import models  # type: ignore[import-untyped]

    (zero,) = devices(1, "sim")
    with torch.device("meta"):
        net: nn.Module = getattr(models, network)()
    side = SIDES[network]
    image = torch.empty(1, 3, side, side, device=zero)
    return net.to_empty(device=zero).eval(), image


@contextmanager
def _inference(mixed: bool) -> Iterator[None]:
    cast = torch.autocast("sim", torch.float16, enabled=mixed)
    with torch.no_grad(), cast:
        yield


def _count(spans: list[Span], kind: str) -> int:
    return sum(span.kind == kind for span in spans)
