"""What the planner says of a host's launches, against simulated devices."""

import gc
from dataclasses import replace
from functools import partial

import pytest
import torch
from recorders.trust import convolutional
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from dpbook.planner.case import Case
from dpbook.planner.launches import LAYERS, Launches, layer_launches
from dpbook.planner.layouts import Layout
from dpbook.planner.networks import NETWORKS, Planned
from dpkit import sim
from dpkit.machine import devices
from dpkit.sim.hardware import HOSTS
from dpkit.sim.hardware.clusters import cluster
from tests.book.eager_layers import ExpertsLayer, GptLayer, LlamaLayer

MAKE = {
    "GPT": GptLayer,
    "GPT, attention in parts": partial(GptLayer, fused=False),
    "Llama": LlamaLayer,
    "experts": ExpertsLayer,
}
WIDTH, HEADS, INNER = 512, 8, 1408
PROGRAM = HOSTS["eager-program"]


def traced(name, num_layers, tokens, again=False):
    """Return timelines, forward and backward, of layers on an H100.

    If ``again``, backward computes each layer once more.
    """
    hardware = {"accelerator": "h100", "host": "eager-program"}
    with sim.machine(
        num_devices=1, backing="meta", hosts="per_device", **hardware
    ):
        (zero,) = devices(1, "sim")
        with torch.device("meta"):
            layers = [
                MAKE[name](WIDTH, HEADS, INNER) for _ in range(num_layers)
            ]
            net = nn.ModuleList(layers).to(torch.bfloat16)
        net = net.to_empty(device=zero)
        half = {"device": zero, "dtype": torch.bfloat16}
        angles = [torch.empty(tokens, WIDTH // HEADS, **half) for _ in "cs"]
        y = torch.empty(1, tokens, WIDTH, **half, requires_grad=True)
        torch.sim.synchronize(zero)
        with sim.trace() as forward:
            for layer in net:
                if again:
                    y = checkpoint(layer, y, *angles, use_reentrant=False)
                else:
                    y = layer(y, *angles)
            torch.sim.synchronize(zero)
        gradient = torch.empty_like(y)
        torch.sim.synchronize(zero)
        with sim.trace() as backward:
            y.backward(gradient)
            torch.sim.synchronize(zero)
    return forward, backward


def launched(timeline):
    """Return the kernels and the views of a timeline."""
    kernels = sum(span.kind == "compute" for span in timeline.spans)
    issued = sum(span.kind == "launch" for span in timeline.spans)
    return kernels, issued - kernels


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_launches_what_is_counted(name):
    """What six layers have more than two, which have the same ends."""
    two, six = (
        [launched(t) for t in traced(name, count, 64)] for count in (2, 6)
    )
    found = [
        Launches(*((b - a) / 4 for a, b in zip(few, many)))
        for few, many in zip(two, six)
    ]
    assert found == list(LAYERS[name])


def seconds_of_a_layer(name, tokens):
    """Return what a layer takes, and its device alone, forward and back."""
    whole, alone = (0.0, 0.0)
    for count, sign in ((2, -1), (6, 1)):
        for timeline in traced(name, count, tokens):
            whole += sign * timeline.makespan / 4
            alone += sign * sum(
                (span.end - span.start) / 4
                for span in timeline.spans
                if span.kind == "compute"
            )
    return whole, alone


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_of_few_tokens_takes_as_long_as_its_launches(name):
    whole, alone = seconds_of_a_layer(name, 64)
    host = LAYERS[name].seconds(PROGRAM)
    assert alone < 0.5 * host
    assert whole == pytest.approx(host, rel=0.02)


# Attention in parts keeps a number for each pair of tokens.
MANY = dict.fromkeys(LAYERS, 65536) | {"GPT, attention in parts": 8192}


@pytest.mark.parametrize("name", MANY)
def test_a_layer_of_many_tokens_takes_as_long_as_its_device(name):
    whole, alone = seconds_of_a_layer(name, MANY[name])
    assert alone > 2 * LAYERS[name].seconds(PROGRAM)
    assert whole == pytest.approx(alone, rel=0.02)


def seconds_of_kernels(make, tokens):
    """Return what all kernels but products take of a layer on an H100."""
    found = []
    for count in (1, 3):
        with sim.machine(num_devices=1, backing="meta", accelerator="h100"):
            (zero,) = devices(1, "sim")
            with torch.device("meta"):
                layers = nn.ModuleList(make() for _ in range(count))
            net = layers.to(torch.bfloat16).to_empty(device=zero)
            half = {"device": zero, "dtype": torch.bfloat16}
            for p in net.parameters():
                p.grad = torch.empty_like(p)
            angles = [torch.empty(tokens, 128, **half) for _ in "cs"]
            y = torch.empty(1, tokens, 4096, **half, requires_grad=True)
            with sim.trace() as timeline:
                for layer in net:
                    y = layer(y, *angles)
                y.backward(torch.empty_like(y))
        found.append(
            sum(
                span.end - span.start
                for span in timeline.spans
                if span.kind == "compute" and not span.flops
            )
        )
    return (found[1] - found[0]) / 2


@pytest.mark.parametrize(
    ("make", "network", "times"),
    [
        (lambda: LlamaLayer(4096, 32, 11_008), NETWORKS["7B"], 2.9),
        (
            lambda: GptLayer(4096, 32, 16_384),
            Planned(
                layers=32,
                hidden=4096,
                heads=32,
                vocabulary=32_000,
                sequence=4096,
            ),
            1.15,
        ),
    ],
    ids=["Llama", "GPT"],
)
def test_llama_in_plain_modules_moves_more_than_is_counted(
    make, network, times
):
    """Its norms and rotary positions, where kernels are taken as fused."""
    case = Case(network, 1, cluster(1, "h100"), kernels="fused")
    planned = case.parts(Layout(1)).block.kernels
    simulated = seconds_of_kernels(make, network.sequence)
    assert simulated / planned == pytest.approx(times, rel=0.03)


SMALL = Planned(
    layers=8,
    hidden=512,
    heads=8,
    vocabulary=1000,
    sequence=64,
    feed_forward=INNER,
    gated=True,
)
ALONE = Layout(1)


def case(network=SMALL, host=PROGRAM, num_devices=1):
    machine = cluster(num_devices, "h100", "nvlink4")
    return Case(network, 8, machine, host=host, kernels="fused")


def test_a_layer_takes_the_longer_of_device_and_host():
    """The worked case of the module: a layer of 7B, one device or eight."""
    for t, device, host in ((1, 12.51, 2.96), (8, 2.46, 3.26)):
        parts = case(NETWORKS["7B"], num_devices=t).parts(Layout(1, t))
        found = parts.block.seconds + parts.messages, parts.launched
        assert [round(1e3 * s, 2) for s in found] == [device, host]
        assert parts.one == pytest.approx(max(found))
        assert parts.waiting == pytest.approx(max(0, found[1] - found[0]))


def test_waiting_for_launches_is_a_part_of_the_step():
    eager = case().seconds(ALONE)
    compiled = case(host=None).seconds(ALONE)
    parts = case().parts(ALONE)
    assert compiled.launches == 0
    assert eager.launches == pytest.approx(8 * 8 * parts.waiting)
    assert eager.total - compiled.total == pytest.approx(eager.launches)
    launches = LAYERS["Llama"].seconds(PROGRAM)
    assert eager.total > 8 * 8 * launches


def test_a_slower_host_makes_small_layers_slower_and_no_large_ones():
    slow = replace(PROGRAM, launch_seconds=2 * PROGRAM.launch_seconds)
    small, large = SMALL, replace(SMALL, sequence=65_536)
    for network, grows in ((small, True), (large, False)):
        usual, slower = (
            case(network, host).seconds(ALONE).total
            for host in (PROGRAM, slow)
        )
        assert (slower > 1.2 * usual) == grows
        assert (slower == usual) != grows


@pytest.mark.parametrize("name", LAYERS)
def test_recomputed_layers_are_launched_once_more(name):
    """But for the last kernels, of which backward needs no result."""
    two, six = (
        sum(launched(t)[0] for t in traced(name, count, 64, again=True))
        for count in (2, 6)
    )
    forward, backward = LAYERS[name]
    both = 2 * forward.kernels + backward.kernels
    assert both - 3 <= (six - two) / 4 <= both


def test_recomputation_launches_forward_once_more():
    once, twice = (layer_launches(SMALL, twice=x) for x in (False, True))
    assert twice.forward == Launches(*(2 * n for n in once.forward))
    assert twice.backward == once.backward
    full = case().parts(ALONE._replace(recompute="full"))
    assert full.launched == twice.seconds(PROGRAM)


@pytest.mark.parametrize(
    ("rows", "gathered", "collectives"),
    [(True, "again", 10), (True, "kept", 8), (False, "again", 4)],
)
def test_each_collective_of_a_tensor_group_is_a_launch(
    rows, gathered, collectives
):
    layout = Layout(1, 8, sequence_parallel=rows, gathered=gathered)
    found = case(num_devices=8).parts(layout).launched
    more = found - case().parts(ALONE).launched
    assert more == pytest.approx(collectives * PROGRAM.launch_seconds)


def test_attention_in_parts_has_more_launches():
    plain = Planned(
        layers=8, hidden=512, heads=8, vocabulary=1000, sequence=64
    )
    in_parts = replace(plain, fused=False)
    assert layer_launches(plain) == LAYERS["GPT"]
    assert layer_launches(in_parts) == LAYERS["GPT, attention in parts"]


def test_resnet50_launches_what_is_counted():
    with sim.machine(num_devices=1, backing="meta", hosts="per_device"):
        ranks = devices(1, "sim")
        with torch.device("meta"):
            net = convolutional.NETWORKS["resnet50 v1.5"][0]()
        net = net.to_empty(device=ranks[0])
        trainer = convolutional._Trainer(net, ranks, True, False)
        X, y = convolutional._batch(4, 224, ranks[0])
        trainer.step([(X, y)])
        with (
            sim.trace() as forward,
            torch.autocast("sim", torch.float16),
        ):
            loss = F.cross_entropy(trainer.replicas[0](X), y)
        with sim.trace() as backward:
            loss.backward()
        del trainer, net, loss, X, y
    gc.collect()
    found = [Launches(*launched(t)) for t in (forward, backward)]
    assert found == list(NETWORKS["ResNet-50"].launches)
