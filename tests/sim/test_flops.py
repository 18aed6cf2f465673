"""The arithmetic that operations are charged for."""

import gc
import re
import warnings
from functools import partial
from itertools import groupby
from math import prod

import pytest
import torch
from torch import nn
from torch._ops import OpOverloadPacket
from torch.utils.flop_counter import FlopCounterMode, flop_registry
from torchvision import models
from torchvision.models import regnet

import dpkit
from dpkit.sim.operators.flops import BY_PYTORCH, counting
from tests.weekly import few_of

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


def counted_by_pytorch(run):
    with FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops()


@pytest.mark.parametrize("groups", GROUPS)
@pytest.mark.parametrize("dimensions", [1, 2, 3])
@pytest.mark.parametrize("transposed", [False, True])
def test_a_convolution_takes_what_pytorch_counts(
    dimensions, groups, transposed, zero
):
    found = []
    for device, count in ((zero, total), ("meta", counted_by_pytorch)):
        convolve, x, w = convolution(dimensions, groups, transposed, device)
        found.append(count(partial(convolve, x, w)))
    assert found[0] == found[1] > 0


# Each with the shapes of what it takes.
PRODUCTS = {
    "mm": [(3, 4), (4, 5)],
    "addmm": [(3, 5), (3, 4), (4, 5)],
    "bmm": [(2, 3, 4), (2, 4, 5)],
    "baddbmm": [(2, 3, 5), (2, 3, 4), (2, 4, 5)],
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_product_takes_what_pytorch_counts(name, zero):
    found = []
    for device, count in ((zero, total), ("meta", counted_by_pytorch)):
        given = [torch.empty(shape, device=device) for shape in PRODUCTS[name]]
        found.append(count(partial(getattr(torch, name), *given)))
    assert found[0] == found[1] > 0


# One has no kernel; the formula of the other takes what it is not given.
NOT_RUN = {"convolution_overrideable", "_slow_conv2d_forward"}


def test_all_is_counted_that_pytorch_counts():
    ours = [p for p in flop_registry if isinstance(p, OpOverloadPacket)]
    ours = [p for p in ours if p.__name__ not in NOT_RUN]
    assert len(ours) > 15
    assert {p.__name__ for p in ours} > {*BY_PYTORCH}
    for packet in ours:
        for name in packet.overloads():
            assert counting(getattr(packet, name)), (packet, name)


@pytest.mark.parametrize("grad", [True, False])
def test_a_bilinear_layer_multiplies_a_matrix_for_each_output(grad, zero):
    """5 rows of 3 and 4 numbers, 6 outputs: x₁ times a matrix, times x₂."""
    x_1 = torch.empty(5, 3, device=zero, requires_grad=grad)
    x_2 = torch.empty(5, 4, device=zero, requires_grad=grad)
    layer = nn.Bilinear(3, 4, 6, bias=False).to(zero)
    ys = []
    with torch.set_grad_enabled(grad):
        forward = total(lambda: ys.append(layer(x_1, x_2)))
    assert forward == 6 * (2 * 5 * 3 * 4 + 2 * 5 * 4)
    if grad:
        # A product of that size for each of three gradients: each row of x₁
        # or x₂ is multiplied by its gradient first, which is no product.
        blank = torch.empty_like(ys[0])
        assert total(lambda: ys[0].backward(blank)) == 3 * 6 * 2 * 5 * 3 * 4


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.inference_mode])
def test_distances_are_a_product_of_rows_with_their_squares(mode, zero):
    """|a - b|² = -2 ab + a² · 1 + 1 · b²: rows of 5 numbers become 7."""
    a = torch.empty(2, 30, 5, device=zero, requires_grad=True)
    b = torch.empty(2, 40, 5, device=zero, requires_grad=True)
    ys = []
    with mode():
        forward = total(lambda: ys.append(torch.cdist(a, b)))
    assert forward == 2 * 2 * 30 * 40 * 7
    if mode is torch.enable_grad:
        blank = torch.empty_like(ys[0])
        backward = total(lambda: ys[0].backward(blank))
        assert backward == 2 * 2 * 2 * 30 * 40 * 5


# The page on limits names them as charged for their traffic alone.
_linalg = torch.linalg
UNCOUNTED = {
    "inv": lambda a: _linalg.inv(a),
    "solve": lambda a: _linalg.solve(a, a),
    "cholesky": lambda a: _linalg.cholesky(a),
    "lu": lambda a: _linalg.lu(a),
    "qr": lambda a: _linalg.qr(a),
    "eigh": lambda a: _linalg.eigh(a),
    "svd": lambda a: _linalg.svd(a),
    "lstsq": lambda a: _linalg.lstsq(a, a),
    "matrix_exp": lambda a: _linalg.matrix_exp(a),
    "fft": lambda a: torch.fft.rfft2(a),
    "mv": lambda a: a.mv(a[0]),
    "addmv": lambda a: a[0].addmv(a, a[0]),
    "dot": lambda a: a[0].dot(a[0]),
    "outer": lambda a: a[0].outer(a[0]),
    "addr": lambda a: a.addr(a[0], a[0]),
    "distances": lambda a: torch.cdist(a, a, p=1.0),
    "few distances": lambda a: torch.cdist(a[:25], a[:25]),
}


@pytest.mark.parametrize("name", UNCOUNTED)
def test_charged_for_traffic_alone(name):
    with dpkit.sim.machine(backing="cpu", num_devices=1):
        a = torch.eye(30, device="sim:0")
        assert not flops_of(lambda: UNCOUNTED[name](a))


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


# Plain, with groups, of one channel, with attention, branches, frames, pixels.
HERE = [
    "lraspp_mobilenet_v3_large",
    "mvit_v1_b",
    "regnet_x_400mf",
    "resnet18",
    "s3d",
    "shufflenet_v2_x0_5",
    "swin_v2_t",
    "vit_b_16",
]


@pytest.mark.parametrize("name", few_of(SMALLEST, HERE))
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
