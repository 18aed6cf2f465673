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

from dpkit import sim
from dpkit.machine import Timer, devices
from dpkit.theory.clock.record import Span

SIDES = {"efficientnet_b0": 224, "efficientnet_b4": 380}  # of an image


def published_seconds(path: str | Path) -> dict[tuple[str, bool], float]:
    """Return the seconds of one image on an A100: of each network, in turn.

    The keys are arguments of ``image_seconds``: a network, and whether it
    computes in mixed precision; if not, in TF32. ``path`` is that of
    ``book/_data/efficientnet_nvidia.json``.
    """
    record = json.loads(Path(path).read_text(encoding="utf-8"))
    return {
        (network, precision == "mixed"): 1 / rate
        for precision, rates in record["images_per_second"]["A100"].items()
        for network, rate in rates.items()
    }


def image_seconds(network: str, mixed: bool, host: str) -> float:
    """Return the simulated seconds of one image, forward, on an A100.

    ``network`` is a name in ``SIDES``, and ``host`` a preset. If ``mixed``,
    autocast computes in float16 where it may.

    Example:
        Published are 7.7 ms:

        >>> from dpkit.lab.devices.latency import image_seconds
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
    """Return how many kernels and how many views one image takes."""
    with sim.machine(accelerator="a100", link="nvlink3"):
        net, image = _network_and_image(network)
        with _inference(mixed=False), sim.trace() as timeline:
            net(image)
    kernels = _count(timeline.spans, "compute")
    return kernels, _count(timeline.spans, "launch") - kernels


def _network_and_image(network: str) -> tuple[nn.Module, Tensor]:
    """Return a network on device 0, with any numbers, and an image."""
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
