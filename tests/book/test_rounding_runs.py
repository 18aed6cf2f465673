"""Two runs that are equal up to rounding, step by step."""

import torch

from dpbook.common.models import lenet_params
from dpbook.precision.rounding_runs import signs, two_runs


def batches():
    torch.manual_seed(0)
    return torch.rand(3, 8, 1, 28, 28), torch.arange(24).view(3, 8) % 10


def test_the_last_bits_differ():
    X, y = batches()
    single = two_runs(X, y, torch.float32, torch.tanh)
    double = two_runs(X, y, torch.float64, torch.tanh)
    assert len(single) == len(double) == 3
    largest = [max(step.distance for step in run) for run in (single, double)]
    assert 0 < largest[1] < 1e-13 < largest[0] < 1e-4


def test_the_same_run_twice():
    for count in (1, 2):
        run = two_runs(*batches(), torch.float32, counts=(count, count))
        assert [tuple(step) for step in run] == [(0, 0.0)] * 3


def test_signs_tell_values_of_all_layers():
    X, params = torch.zeros(2, 1, 28, 28), lenet_params()
    sizes = [2 * 20 * 26 * 26, 2 * 50 * 9 * 9, 2 * 128]
    assert signs(X, params).shape == (sum(sizes),)
    assert not signs(X, params).any()  # nothing in, no biases
    for place, bias in ((0, 1), (1, 3), (2, 5)):
        params = lenet_params()
        params[bias][:2] = 1.0  # two of the channels
        layers = signs(X, params).split(sizes)
        share = layers[place].double().mean() * len(params[bias])
        assert share == 2
        assert not any(layer.any() for layer in layers[:place])


def test_coarse_rounding_flips_soon():
    """Both begin with the same parameters, and in 8 digits part at once."""
    steps = two_runs(*batches(), torch.bfloat16)
    assert steps[0].num_flips == 0
    assert steps[-1].num_flips > 0
