"""Tests of dpkit.sim.kernels.own: what CUDA takes and the CPU does not."""

import pytest
import torch
from torch.nn import functional as F

from dpkit import sim
from dpkit.sim.kernels.own import INTEGERS

sim.register()


def loss_and_gradient(device, lengths, reduction):
    """Return ctc_loss and its gradient; ``lengths`` makes the lengths."""
    torch.manual_seed(3)
    log_probs = torch.randn(5, 2, 4).log_softmax(2).to(device)
    log_probs.requires_grad_()
    targets = torch.tensor([[1, 2], [3, 1]], device=device)
    loss = F.ctc_loss(
        log_probs, targets, lengths([5, 4]), lengths([2, 1]), 0, reduction
    )
    loss.sum().backward()
    return loss.detach().cpu(), log_probs.grad.cpu()


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("place", ["cpu", "sim:1", None])
def test_lengths_of_ctc_loss(place, reduction):
    def lengths(numbers):
        return numbers if place is None else torch.tensor(numbers).to(place)

    found = loss_and_gradient("sim:1", lengths, reduction)
    expected = loss_and_gradient("cpu", torch.tensor, reduction)
    assert all(map(torch.equal, found, expected))


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize(
    ("bins", "low", "high"), [(4, 0, 8), (3, 2, 7), (5, 0, 0), (9, 0, 90)]
)
def test_histc_of_integers(dtype, bins, low, high):
    """They fall into the bins that equal floats fall into."""
    numbers = torch.tensor([0, 1, 1, 3, 5, 6, 8, 8, 12], dtype=dtype)
    found = torch.histc(numbers.to("sim:1"), bins, low, high)
    expected = torch.histc(numbers.double(), bins, low, high)
    assert found.dtype == dtype
    assert str(found.device) == "sim:1"
    assert found.tolist() == expected.tolist()


def test_limits_of_histc_are_made_integers():
    x = torch.arange(5, device="sim:1")
    assert torch.histc(x, bins=4, min=0.5, max=3.5).tolist() == [1, 1, 1, 1]


def test_histc_of_one_number():
    x = torch.tensor([4, 4, 4], device="sim:1")
    assert torch.histc(x, 3).tolist() == [0, 3, 0]


@pytest.mark.parametrize(
    ("bins", "low", "high", "words"),
    [(0, 0, 1, "bins must be > 0"), (3, 2, 1, "max must be larger than min")],
)
def test_histc_that_cannot_be(bins, low, high, words):
    with pytest.raises(RuntimeError, match=words):
        torch.histc(torch.tensor([1, 2], device="sim:1"), bins, low, high)


def test_what_neither_has():
    with pytest.raises(NotImplementedError, match="for 'Bool'"):
        torch.histc(torch.tensor([True], device="sim:1"))
