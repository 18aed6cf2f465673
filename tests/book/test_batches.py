"""Tests of dpbook.common.batches."""

import pytest
import torch

import dpkit
from dpbook.common.batches import Batches


def numbered(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Images of 1 x 3 x 2, n of them; image i holds 10 i, label i is i."""
    labels = torch.arange(n)
    images = (10.0 * labels).view(n, 1, 1, 1).expand(n, 1, 3, 2)
    return images, labels


def epoch(batches: Batches) -> list[int]:
    """The labels of one epoch, each checked to be with its image."""
    order = []
    for X, y in batches:
        assert X.shape == (len(y), 1, 3, 2)
        assert torch.equal(X, numbered(int(y.max()) + 1)[0][y])
        order += y.tolist()
    return order


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize(
    ("n", "batch_size", "sizes"),
    [
        (11, 4, [4, 4, 3]),
        (12, 4, [4, 4, 4]),
        (13, 4, [4, 4, 4, 1]),
        (3, 4, [3]),
        (3, 1, [1, 1, 1]),
        (0, 4, []),
    ],
)
def test_every_example_once(
    n: int, batch_size: int, sizes: list[int], shuffle: bool
) -> None:
    """An epoch is the whole set, the last and smaller batch included."""
    batches = Batches(*numbered(n), batch_size, shuffle=shuffle)
    for _ in range(2):
        assert [len(y) for _, y in batches] == sizes
        assert sorted(epoch(batches)) == list(range(n))
    assert len(batches) == len(sizes)


def test_unshuffled_batches_keep_the_order() -> None:
    """Evaluation needs no other order than the set's."""
    batches = Batches(*numbered(11), batch_size=4)
    assert epoch(batches) == epoch(batches) == list(range(11))


def test_shuffled_order_is_new_each_epoch() -> None:
    """Three epochs of 50 examples, three orders, none the set's."""
    batches = Batches(*numbered(50), batch_size=8, shuffle=True)
    orders = [epoch(batches) for _ in range(3)] + [list(range(50))]
    assert len({tuple(order) for order in orders}) == 4


def orders_by_seed(seed: int) -> list[list[int]]:
    """The orders of two epochs."""
    batches = Batches(*numbered(50), batch_size=8, shuffle=True, seed=seed)
    return [epoch(batches) for _ in range(2)]


def test_shuffled_order_repeats_by_seed() -> None:
    """The seed alone decides, whatever else draws random numbers."""
    torch.manual_seed(1)
    first = orders_by_seed(7)
    torch.manual_seed(2)
    state = torch.get_rng_state()
    assert orders_by_seed(7) == first
    assert torch.equal(torch.get_rng_state(), state)
    assert orders_by_seed(8) != first


@pytest.mark.parametrize("shuffle", [False, True])
def test_batches_do_not_alias_the_set(shuffle: bool) -> None:
    """Writing into a batch leaves the set alone."""
    images, labels = torch.ones(5, 1, 3, 2), torch.ones(5)
    for X, y in Batches(images, labels, 2, shuffle):
        X.zero_()
        y.zero_()
    assert images.min() == labels.min() == 1


@pytest.mark.parametrize("batch_size", [0, -3])
def test_batch_without_rows(batch_size: int) -> None:
    """A batch holds at least one example."""
    with pytest.raises(ValueError, match=rf"\(batch_size: {batch_size}\)"):
        Batches(*numbered(5), batch_size)


def test_images_and_labels_of_different_lengths() -> None:
    """Checked at the door, not in the middle of an epoch."""
    images, labels = numbered(5)
    with pytest.raises(ValueError, match=r"\(images: 5, labels: 4\)"):
        Batches(images, labels[:-1], batch_size=2)


def test_batches_are_pinned_where_devices_copy_them():
    devices = dpkit.devices(2, "sim")
    for pins in (False, True):
        batches = Batches(*numbered(5), 2, pin_memory=pins)
        assert [X.is_pinned() for X, y in batches] == [pins] * 3
        assert [y.is_pinned() for X, y in batches] == [pins] * 3
    there = [part.to(devices[1]) for part in numbered(5)]
    (X, _), *_ = Batches(*there, 5, pin_memory=True)
    assert X.device == devices[1]


def test_without_devices_no_batch_is_pinned(monkeypatch):
    dpkit.devices(1, "sim")
    monkeypatch.delattr(torch, "sim")
    monkeypatch.setattr("dpbook.common.batches.real_devices", list)
    (X, _), *_ = Batches(*numbered(5), 2, pin_memory=True)
    assert not X.is_pinned()
