"""Tests of dpkit.collectives."""

import pytest
import torch

import dpkit
from dpkit.collectives import ALGORITHMS


def whole_numbers(devices, shape=(2, 3), dtype=torch.float32):
    """Random tensors of whole numbers, whose sums are exact, and copies."""
    generator = torch.Generator().manual_seed(len(devices))
    wholes = [
        torch.randint(-9, 9, shape, generator=generator).to(dtype)
        for _ in devices
    ]
    copies = zip(wholes, devices, strict=True)
    return wholes, [whole.to(d, copy=True) for whole, d in copies]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("k", range(1, 6))
@pytest.mark.parametrize("shape", [(), (0,), (1,), (2, 3), (17,)])
def test_allreduce_sums_on_every_rank(get_devices, algorithm, k, shape):
    wholes, tensors = whole_numbers(get_devices(k), shape)
    dpkit.allreduce(tensors, algorithm=algorithm)
    for tensor in tensors:
        assert torch.equal(tensor.cpu(), torch.stack(wholes).sum(0))


@pytest.mark.parametrize("k", [2, 4])
def test_allreduce_means_on_every_rank(get_devices, k):
    wholes, tensors = whole_numbers(get_devices(k))
    dpkit.allreduce(tensors, op="mean")
    for tensor in tensors:
        assert torch.equal(tensor.cpu(), torch.stack(wholes).mean(0))


@pytest.mark.parametrize("k", range(1, 6))
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_allreduce_finds_the_maximum_on_every_rank(get_devices, k, dtype):
    wholes, tensors = whole_numbers(get_devices(k), (17,), dtype)
    objects = list(tensors)
    dpkit.allreduce(tensors, op="max")
    assert all(a is b for a, b in zip(objects, tensors, strict=True))
    for tensor in tensors:
        assert torch.equal(tensor.cpu(), torch.stack(wholes).amax(0))


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.bfloat16, torch.int64, torch.complex64]
)
def test_allreduce_keeps_the_dtype(get_devices, dtype):
    wholes, tensors = whole_numbers(get_devices(3), dtype=dtype)
    dpkit.allreduce(tensors)
    for tensor in tensors:
        assert tensor.dtype == dtype
        assert torch.equal(tensor.cpu(), torch.stack(wholes).sum(0))


def test_allreduce_is_in_place_and_devices_stay(get_devices):
    devices = get_devices(3)
    _, tensors = whole_numbers(devices)
    objects = list(tensors)
    dpkit.allreduce(tensors)
    assert all(a is b for a, b in zip(objects, tensors, strict=True))
    assert [t.device for t in tensors] == devices
    tensors[1].zero_()
    assert tensors[0].any()
    assert tensors[2].any()


def test_allreduce_of_leaves_that_require_gradients(get_devices):
    replicas = dpkit.replicate([torch.ones(3)], get_devices(2))
    dpkit.allreduce([params[0] for params in replicas])
    assert replicas[1][0].tolist() == [2, 2, 2]
    assert replicas[1][0].is_leaf


@pytest.mark.parametrize("root", range(3))
def test_broadcast(get_devices, root):
    wholes, tensors = whole_numbers(get_devices(3))
    dpkit.broadcast(tensors, root)
    for tensor in tensors:
        assert torch.equal(tensor.cpu(), wholes[root])


@pytest.mark.parametrize("root", range(3))
@pytest.mark.parametrize("op", ["sum", "mean", "amax"])
def test_reduce_changes_the_root_alone(get_devices, op, root):
    wholes, tensors = whole_numbers(get_devices(3))
    dpkit.reduce(tensors, op.removeprefix("a"), root)
    for rank, tensor in enumerate(tensors):
        whole = wholes[rank]
        if rank == root:
            whole = getattr(torch.stack(wholes), op)(0)
        assert torch.allclose(tensor.cpu(), whole)


def test_shapes_or_dtypes_differ(get_devices):
    devices = get_devices(2)
    one, other = (torch.zeros(2, 3, device=d) for d in devices)
    words = r"rank 0: \(2, 3\) torch.float32, rank 1: "
    for wrong in (other.reshape(3, 2), other.double()):
        for act in (dpkit.allreduce, dpkit.broadcast, dpkit.reduce):
            with pytest.raises(ValueError, match=words):
                act([one, wrong])


def test_two_ranks_on_one_storage(get_devices):
    (device,) = get_devices(1)
    x = torch.ones(4, device=device)
    for pair in ([x, x], [x, x[:]], [x[:2], x[2:]]):
        with pytest.raises(ValueError, match=r"share one storage.*0 and 1"):
            dpkit.allreduce(pair)
    with pytest.raises(ValueError, match=r"share one storage.*0 and 2"):
        dpkit.allreduce([x, torch.ones(4, device=device), x])
    assert x.tolist() == [1, 1, 1, 1]


def test_tensors_without_elements_share_nothing(get_devices):
    (device,) = get_devices(1)
    x = torch.ones(4, device=device)
    dpkit.allreduce([x[:0], x[:0]])
    dpkit.allreduce([torch.ones(0, device=device) for _ in range(3)])


def test_unknown_words(get_devices):
    _, tensors = whole_numbers(get_devices(2))
    with pytest.raises(ValueError, match=r"algorithm: 'rung', known: star"):
        dpkit.allreduce(tensors, algorithm="rung")
    with pytest.raises(ValueError, match=r"op: 'avg', known: sum, mean"):
        dpkit.allreduce(tensors, op="avg")
    with pytest.raises(ValueError, match=r"root: 2, ranks: 0 to 1"):
        dpkit.broadcast(tensors, root=2)
    with pytest.raises(ValueError, match=r"root: -1, ranks: 0 to 1"):
        dpkit.reduce(tensors, root=-1)


def test_mean_of_integers(get_devices):
    _, tensors = whole_numbers(get_devices(2), dtype=torch.int64)
    with pytest.raises(ValueError, match=r"no exact mean \(dtype: torch.int"):
        dpkit.allreduce(tensors, op="mean")


def test_maximum_of_complex_numbers(get_devices):
    _, tensors = whole_numbers(get_devices(2), dtype=torch.complex64)
    with pytest.raises(ValueError, match=r"no order \(dtype: torch.complex"):
        dpkit.allreduce(tensors, op="max")


def test_no_tensors():
    for act in (dpkit.allreduce, dpkit.broadcast, dpkit.reduce):
        with pytest.raises(ValueError, match=r"\(tensors: 0\)"):
            act([])
