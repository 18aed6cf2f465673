"""How long a step of the experiment takes on k simulated devices."""

from torch import nn

from dpkit.lab.large_batches.runs import RECIPE, network
from dpkit.lab.overlap.runs import ALL_IN_ONE, ring_seconds, simulated_step
from dpkit.theory.hardware.clusters import cluster


def images_network() -> nn.Module:
    """Return the network, for images that are not shrunk yet."""
    return nn.Sequential(nn.AvgPool2d(2), network())


def simulated_seconds(k: int, link: str) -> float:
    """Return the simulated time of a step with b images on each of k devices.

    Forward, backward and the sum of the gradients; a process for each device.
    The update, which takes the same time for every k, is left out.
    """
    step = simulated_step(
        ALL_IN_ONE,
        make=images_network,
        num_devices=k,
        rows=RECIPE.batch_size,
        link=link,
    )
    return step.seconds


def predicted_seconds(k: int, link: str) -> float:
    """Return the same from one device and the cost of a ring, for any k."""
    alone = simulated_seconds(1, link)
    if k == 1:
        return alone
    num_bytes = sum(p.nbytes for p in network().parameters())
    joined = cluster(k, "v100", link, hosts="per_device")
    return alone + ring_seconds(num_bytes, joined)
