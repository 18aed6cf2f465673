"""Tests of the pairs of conjugate operations."""

import pytest
import torch

from dpkit import layer_partition as lp
from dpkit.layer_partition.shards import even_sizes


def leaves(devices, shapes):
    generator = torch.Generator().manual_seed(len(devices))
    return [
        torch.randn(shape, generator=generator, dtype=torch.double)
        .to(device)
        .requires_grad_()
        for shape, device in zip(shapes, devices, strict=True)
    ]


def check(operation, xs, expected, expected_gradients, gradients):
    """Compare outputs and gradients of all ranks with tensors on the CPU."""
    ys = operation(xs)
    torch.autograd.backward(
        ys, [g.to(y.device) for g, y in zip(gradients, ys, strict=True)]
    )
    found = [*ys, *(x.grad for x in xs)]
    devices = [x.device for x in xs]
    assert [t.device for t in found] == devices * 2
    wanted = [*expected, *expected_gradients]
    for tensor, value in zip(found, wanted, strict=True):
        torch.testing.assert_close(
            tensor.detach().cpu(), value, rtol=0, atol=1e-12
        )


@pytest.fixture(params=range(1, 5))
def k(request):
    return request.param


def values(tensors):
    return [t.detach().cpu() for t in tensors]


def test_allreduce_backward(get_devices, k):
    xs = leaves(get_devices(k), [(3, 2)] * k)
    gradients = values(leaves(get_devices(k), [(3, 2)] * k))
    total = torch.stack(gradients).sum(0)
    check(lp.allreduce_backward, xs, values(xs), [total] * k, gradients)


def test_allreduce_forward(get_devices, k):
    xs = leaves(get_devices(k), [(3, 2)] * k)
    gradients = values(leaves(get_devices(k), [(3, 2)] * k))
    total = torch.stack(values(xs)).sum(0)
    check(lp.allreduce_forward, xs, [total] * k, gradients, gradients)


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_allgather_forward(get_devices, k, dim):
    sizes = even_sizes(7, k)
    shapes = [(n, 2) if dim == 0 else (2, n) for n in sizes]
    xs = leaves(get_devices(k), shapes)
    whole = torch.cat(values(xs), dim)
    gradient = torch.randn_like(whole)
    check(
        lambda xs: lp.allgather_forward(xs, dim),
        xs,
        [whole] * k,
        gradient.split(sizes, dim),
        [gradient] * k,
    )


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_reduce_scatter_backward(get_devices, k, dim):
    sizes = even_sizes(7, k)
    shapes = [(n, 2) if dim == 0 else (2, n) for n in sizes]
    xs = leaves(get_devices(k), shapes)
    whole = torch.cat(values(xs), dim)
    gradients = [torch.randn_like(whole) for _ in range(k)]
    check(
        lambda xs: lp.reduce_scatter_backward(xs, dim),
        xs,
        [whole] * k,
        sum(gradients).split(sizes, dim),
        gradients,
    )


def test_reduce_scatter_is_allgather_and_allreduce(get_devices, k):
    """It is the two one after another, and sends less."""
    shapes = [(2, n) for n in even_sizes(7, k)]
    gradients = [torch.randn(2, 7, dtype=torch.double) for _ in range(k)]
    found = []
    for operation in (
        lambda xs: lp.reduce_scatter_backward(xs, 1),
        lambda xs: lp.allreduce_backward(lp.allgather_forward(xs, 1)),
    ):
        xs = leaves(get_devices(k), shapes)
        ys = operation(xs)
        torch.autograd.backward(
            ys, [g.to(y.device) for g, y in zip(gradients, ys, strict=True)]
        )
        found.append(values([*ys, *(x.grad for x in xs)]))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_spread_and_take_one(get_devices, k):
    devices = get_devices(k)
    (x,) = leaves(devices[:1], [(3, 2)])
    xs = lp.spread(x, devices)
    assert [t.device for t in xs] == devices
    ys = [(rank + 1) * t for rank, t in enumerate(xs)]
    y = lp.take_one(ys)
    for t in ys:
        t.retain_grad()
    gradient = torch.randn(3, 2, dtype=torch.double)
    y.backward(gradient.to(devices[0]))
    assert torch.equal(y.detach().cpu(), x.detach().cpu())
    # Every rank is given the gradient, and the first one's comes out.
    for t in ys:
        assert torch.equal(t.grad.cpu(), gradient)
    assert torch.equal(x.grad.cpu(), gradient)


def test_spread_of_whole_numbers(get_devices):
    devices = get_devices(3)
    xs = lp.spread(torch.tensor([4, 0, 2]), devices)
    assert [x.tolist() for x in xs] == [[4, 0, 2]] * 3
    assert [x.device for x in xs] == devices


def test_what_goes_in_is_not_written_to(get_devices):
    devices = get_devices(3)
    xs = leaves(devices, [(3, 2)] * 3)
    gradients = [torch.ones_like(x) for x in xs]
    before = values(xs)
    torch.autograd.backward(lp.allreduce_forward(xs), gradients)
    torch.autograd.backward(lp.allreduce_backward(xs), gradients)
    for x, value in zip(xs, before, strict=True):
        assert torch.equal(x.detach().cpu(), value)
    assert all((g == 1).all() for g in gradients)


def test_an_output_that_is_not_used_counts_as_zeros(get_devices):
    devices = get_devices(3)
    xs = leaves(devices, [(3, 2)] * 3)
    lp.allreduce_backward(xs)[2].sum().backward()
    for x in xs:
        assert torch.equal(x.grad.cpu(), torch.ones(3, 2, dtype=torch.double))
