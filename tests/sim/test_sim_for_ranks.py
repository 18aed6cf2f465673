"""What simulated devices need for PyTorch's engines, without any rank."""

import pytest
import torch
from torch import nn
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.nn import functional as F

import dpkit
from dpkit.sim.kernels import statistics
from dpkit.sim.operators.record import own_key
from dpkit.sim.tensors.tensor import SimTensor

EPS = 1e-5


@pytest.fixture(autouse=True)
def registered():
    dpkit.sim.register()


def test_which_operations_have_kernels_for_simulated_tensors():
    """FSDP's are not PyTorch's basic ones; they are run as they are."""
    import torch.distributed.fsdp

    key = own_key(torch.ops.fsdp.all_gather_copy_in.default)
    assert key in (
        torch._C.DispatchKey.PrivateUse1,
        torch._C.DispatchKey.CompositeExplicitAutograd,
    )
    assert own_key(torch.ops.aten.add.Tensor) is None
    assert own_key(torch.ops.aten.mm.default) is None


# -- other classes of tensors


class Wrapped(torch.Tensor):
    """A tensor that has another inside, as PyTorch's AsyncCollectiveTensor."""

    @staticmethod
    def __new__(cls, inside):
        return torch.Tensor._make_wrapper_subclass(
            cls, inside.shape, dtype=inside.dtype, device=inside.device
        )

    def __init__(self, inside):
        self.inside = inside

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        plain = [getattr(x, "inside", x) for x in args]
        return cls(func(*plain, **(kwargs or {})))


@pytest.mark.parametrize("first", [True, False])
def test_another_class_of_tensor_gets_its_turn(first):
    x, y = torch.ones(3, device="sim:1"), torch.arange(3.0, device="sim:1")
    wrapped = Wrapped(y)
    found = x + wrapped if first else wrapped + x
    assert type(found) is Wrapped
    assert isinstance(found.inside, SimTensor)
    assert found.inside.tolist() == [1, 2, 3]


def test_pytorchs_own_class_gets_its_turn():
    x = torch.ones(3, device="sim:1")
    found = x + AsyncCollectiveTensor(torch.arange(3.0, device="sim:1"))
    assert found.device == torch.device("sim:1")
    assert (found + 0).tolist() == [1, 2, 3]


# -- streams and waiting for all


def test_a_stream_has_its_device():
    stream = torch.sim.Stream("sim:2")
    assert stream.device_index == 2
    assert stream.device_type == int(torch._C._autograd.DeviceType.PrivateUse1)
    event = stream.record_event()
    assert event.device == torch.device("sim:2")


def test_the_accelerator_waits():
    x = torch.ones(1000, 1000, device="sim:1")
    begin = dpkit.sim.now()
    for _ in range(9):
        x = x @ x
    issued = dpkit.sim.now() - begin
    torch.accelerator.synchronize(torch.device("sim:1"))
    assert dpkit.sim.now() - begin > 5 * issued


# -- what SyncBatchNorm is made of, against plain batch normalisation


def parts():
    """Return parts of a batch of images, of two and of three rows."""
    generator = torch.Generator().manual_seed(0)
    shape = 5, 3, 4, 2
    x = torch.randn(*shape, generator=generator, dtype=torch.float64)
    return x, x.split([2, 3])


def test_statistics_are_those_of_the_batch():
    x, _ = parts()
    mean, inverse = statistics.statistics(x, EPS)
    each = x.transpose(0, 1).flatten(1)
    torch.testing.assert_close(mean, each.mean(1))
    variance = each.var(1, correction=0)
    torch.testing.assert_close(inverse, (variance + EPS) ** -0.5)


def joined(x, pieces, *running):
    found = [statistics.statistics(piece, EPS) for piece in pieces]
    means, inverses = (torch.stack(both) for both in zip(*found))
    counts = torch.tensor([p.numel() / 3 for p in pieces]).double()
    running = running or (None, None)
    return statistics._joined(x, means, inverses, *running, 0.1, EPS, counts)


def test_joined_statistics_are_those_of_the_whole():
    """The parts differ in size; running ones go on as nn.BatchNorm's."""
    x, pieces = parts()
    norm = nn.BatchNorm2d(3).double()
    norm(x)
    running = torch.zeros(3).double(), torch.ones(3).double()
    found = joined(x, pieces, *running)
    torch.testing.assert_close(found, statistics.statistics(x, EPS))
    torch.testing.assert_close(running[0], norm.running_mean)
    torch.testing.assert_close(running[1], norm.running_var)


@pytest.mark.parametrize("affine", [True, False])
def test_forward_and_backward_are_those_of_the_whole(affine):
    x, pieces = parts()
    weight, bias = torch.arange(1.0, 7.0).double().view(2, 3)
    if not affine:
        weight = bias = None
    whole = [t.clone().requires_grad_() for t in (x, weight, bias) if affine]
    whole = whole or [x.clone().requires_grad_()]
    y = F.batch_norm(whole[0], None, None, *whole[1:], training=True, eps=EPS)
    dy = y.detach().cos()
    y.backward(dy)

    mean, inverse = joined(x, pieces)
    out = [
        statistics.normed(piece, weight, bias, mean, inverse, EPS)
        for piece in pieces
    ]
    torch.testing.assert_close(torch.cat(out), y.detach())
    sums = [
        statistics._sums(d, piece, mean, inverse, weight, True, True, True)
        for d, piece in zip(dy.split([2, 3]), pieces)
    ]
    total, product, dweight, dbias = map(sum, zip(*sums))
    counts = torch.tensor([16, 24])
    dx = [
        statistics._gradient(
            d, piece, mean, inverse, weight, total, product, counts
        )
        for d, piece in zip(dy.split([2, 3]), pieces)
    ]
    found = [torch.cat(dx), dweight, dbias][: len(whole)]
    torch.testing.assert_close(found, [t.grad for t in whole])


def test_freed_memory_is_not_read():
    weight = torch.ones(3, 2, device="sim")
    weight.untyped_storage().resize_(0)
    copy = torch.ones(3, 2, device="sim:1")
    assert repr(weight) == "tensor(..., device='sim:0', memory freed)"
    for read in (
        weight.sum,
        weight.cpu,
        lambda: weight.add_(1),
        lambda: copy.copy_(weight),
        lambda: torch.stack([weight, weight]),
    ):
        with pytest.raises(RuntimeError, match=r"memory .* was freed"):
            read()
    weight.untyped_storage().resize_(24)
    assert weight.fill_(2).sum().item() == 12
