"""The arithmetic that operations are charged for."""

import gc
import re
import warnings
from itertools import groupby
from math import prod

import pytest
import torch
from torch import nn
from torchvision import models
from torchvision.models import regnet

import dpkit

GROUPS = (1, 4, 32)


@pytest.fixture(scope="module", autouse=True)
def zero():
    """A device without numbers, on which all networks fit."""
    gc.collect()
    with dpkit.sim.machine(backing="meta", num_devices=1, memory_bytes=2**50):
        (device,) = dpkit.devices(1, kind="sim")
        yield device
        gc.collect()


def flops_of(run):
    """Return what each operation is charged for, in order."""
    with dpkit.sim.trace() as timeline:
        run()
    return [(s.name, s.flops) for s in timeline.spans if s.flops]


def total(run):
    return sum(flops for _, flops in flops_of(run))


def convolution(dimensions, groups, transposed, device):
    """Return a convolution of 64 channels to 128, and images for it."""
    name = f"conv{'_transpose' if transposed else ''}{dimensions}d"
    shape = (64, 128 // groups) if transposed else (128, 64 // groups)
    w = torch.empty(*shape, *[3] * dimensions, device=device)
    x = torch.empty(2, 64, *[9] * dimensions, device=device)

    def convolve(x, w, groups=groups):
        return getattr(nn.functional, name)(
            x, w, stride=2, padding=1, groups=groups
        )

    return convolve, x, w


@pytest.mark.parametrize("groups", GROUPS)
@pytest.mark.parametrize("dimensions", [1, 2, 3])
@pytest.mark.parametrize("transposed", [False, True])
def test_each_gradient_of_a_convolution_takes_as_much_as_forward(
    dimensions, groups, transposed, zero
):
    convolve, x, w = convolution(dimensions, groups, transposed, zero)
    forward = total(lambda: convolve(x, w))
    for of_x, of_w in ((True, True), (False, True), (True, False)):
        y = convolve(x.requires_grad_(of_x), w.requires_grad_(of_w))
        backward = total(lambda y=y: y.backward(torch.empty_like(y)))
        assert backward == (of_x + of_w) * forward


@pytest.mark.parametrize("groups", GROUPS)
@pytest.mark.parametrize("transposed", [False, True])
def test_groups_take_what_their_convolutions_take_one_by_one(
    groups, transposed, zero
):
    convolve, x, w = convolution(2, groups, transposed, zero)
    images = x.chunk(groups, dim=1)
    weights = w.chunk(groups, dim=0)

    def one_by_one():
        for part, weight in zip(images, weights, strict=True):
            part, weight = (
                t.detach().requires_grad_() for t in (part, weight)
            )
            y = convolve(part, weight, groups=1)
            y.backward(torch.empty_like(y))

    def at_once():
        y = convolve(x.requires_grad_(), w.requires_grad_())
        y.backward(torch.empty_like(y))

    assert total(at_once) == total(one_by_one)


def test_a_convolution_multiplies_each_weight_by_each_number_under_it(zero):
    """64 of 16 channels in 4 groups: 4 numbers of 3×3 for each output."""
    x = torch.empty(5, 16, 10, 12, device=zero)
    w = torch.empty(64, 4, 3, 3, device=zero)
    (found,) = flops_of(lambda: nn.functional.conv2d(x, w, groups=4))
    outputs = prod((5, 64, 8, 10))
    assert found == ("convolution", 2 * outputs * 4 * 9)


SEGMENTATION = models.list_models(models.segmentation)
NETWORKS = (
    dict.fromkeys(models.list_models(models), (3, 224, 224))
    | {"inception_v3": (3, 299, 299)}
    | dict.fromkeys(SEGMENTATION, (3, 224, 224))
    | dict.fromkeys(models.list_models(models.video), (3, 16, 224, 224))
)


def family(name):
    """Return the name of a network without its numbers."""
    return re.sub(r"\d+", "", name)


def num_weights(name):
    return models.get_model_weights(name).DEFAULT.meta["num_params"]


# Networks whose names differ in numbers alone, as VGG-11 and VGG-19 do, mostly
# have layers of the same kinds. ResNet-50 has other blocks than ResNet-18:
# the smallest ResNeXt and Wide ResNet have these.
SMALLEST = [
    min(alike, key=num_weights)
    for _, alike in groupby(sorted(NETWORKS, key=family), key=family)
]
_widths = regnet.BlockParams.from_init_params


def network(name, device):
    """Return a network of torchvision, whose weights nobody fills."""
    options = {"weights_backbone": None} if name in SEGMENTATION else {}
    with warnings.catch_warnings(), torch.device("meta"):
        warnings.simplefilter("ignore", FutureWarning)  # of its weights
        made = models.get_model(name, **options)
    return made.to_empty(device=device)


def widths_on_cpu(*args, **kwargs):
    """RegNets compute how wide they are, as tensors."""
    with torch.device("cpu"):
        return _widths(*args, **kwargs)


def scores_of(output):
    """Return all outputs of a network, as a list."""
    if isinstance(output, dict):  # of pixels, and of a layer in the middle
        return list(output.values())
    return list(output) if isinstance(output, tuple) else [output]


@pytest.mark.parametrize("name", SMALLEST)
def test_backward_of_a_network_takes_twice_what_forward_takes(
    name, zero, monkeypatch
):
    """Attention takes 2.5 times as much: the scores are computed again.

    Networks of torchvision that cannot be here: those of detection choose
    boxes by their numbers, of which there are none; those that are quantized
    have no backward; those of optical flow take pairs of images.
    """
    monkeypatch.setattr(regnet.BlockParams, "from_init_params", widths_on_cpu)
    net = network(name, zero)
    x = torch.empty(2, *NETWORKS[name], device=zero, requires_grad=True)
    outputs = []
    forward = flops_of(lambda: outputs.extend(scores_of(net(x))))
    blank = [torch.empty_like(y) for y in outputs]
    backward = flops_of(lambda: torch.autograd.backward(outputs, blank))
    parts = []
    for of_attention in (False, True):
        parts += [
            sum(n for op, n in found if ("attention" in op) is of_attention)
            for found in (forward, backward)
        ]
    rest, rest_backward, attention, attention_backward = parts
    assert attention_backward == 2.5 * attention
    if name.startswith("swin_v2"):  # a product of positions, which are fixed
        assert 1.99 * rest < rest_backward < 2 * rest
    else:
        assert rest_backward == 2 * rest
