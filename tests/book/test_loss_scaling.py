"""The scale of a loss goes down at once, and up after a while."""

import torch

from dpbook.precision.loss_scaling import LossScaler

GOOD, BAD = [8.0, -4.0], [1.0, float("inf")]


def scales(steps, **options):
    scaler = LossScaler(shared=False, scale=16.0, **options)
    found = []
    for numbers in steps:
        good = scaler.unscale([torch.zeros(3), torch.tensor(numbers)])
        assert good == (numbers == GOOD)
        found.append(scaler.scale)
    return found


def test_gradients_are_divided():
    grads = [torch.tensor([8.0, -4.0]), torch.tensor(2.0)]
    assert LossScaler(shared=False, scale=4.0).unscale(grads)
    assert grads[0].tolist() == [2.0, -1.0]
    assert grads[1].item() == 0.5


def test_the_scale_is_halved():
    assert scales([GOOD, BAD, BAD, GOOD]) == [16, 8, 4, 4]


def test_not_a_number_counts_as_well():
    assert scales([[float("nan"), 1.0]]) == [8]


def test_the_scale_is_doubled_after_good_steps_in_a_row():
    steps = [GOOD, GOOD, BAD, GOOD, GOOD, GOOD, GOOD]
    found = scales(steps, growth_interval=3)
    assert found == [16, 16, 8, 8, 8, 16, 16]
    assert scales([GOOD] * 6, growth_interval=3) == [16, 16, 32, 32, 32, 64]
