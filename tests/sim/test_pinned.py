"""Tests of storages: pinned memory, with or without a GPU."""

import warnings
from types import SimpleNamespace

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from dpkit import sim
from dpkit.sim.tensors import storages

sim.register()

without_gpu = pytest.mark.skipif(
    storages.has_gpu(), reason="torch uses a GPU here"
)


def says_pinned(tensor):
    """The answer to the clock, and the one to the user, which agree."""
    answers = {storages.is_pinned(tensor), tensor.is_pinned()}
    assert len(answers) == 1
    return answers.pop()


# ------------------------------------------------------------- pin_memory


def test_a_pinned_copy():
    x = torch.arange(6.0).view(2, 3).t()
    y = x.pin_memory()
    assert says_pinned(y)
    assert not says_pinned(x)
    assert y.data_ptr() != x.data_ptr()
    assert y.stride() == x.stride()
    assert torch.equal(x, y)
    assert type(y) is torch.Tensor


def test_what_is_pinned_is_not_copied():
    x = torch.ones(3).pin_memory()
    assert x.pin_memory() is x
    assert x.pin_memory() is x
    assert says_pinned(torch.ones(3).pin_memory())


def test_views_are_pinned_and_copies_are_not():
    x = torch.ones(2, 3).pin_memory()
    for view in (x[1], x.t(), x.detach(), x.view(-1), x.data):
        assert says_pinned(view)
    for copied in (x.clone(), x + 1, x.to("sim:1").cpu()):
        assert not says_pinned(copied)


def test_a_view_keeps_the_mark_when_its_base_is_gone():
    x = torch.ones(1000).pin_memory()
    view = x[10:]
    del x
    assert says_pinned(view)


@without_gpu
def test_a_new_tensor_at_the_address_of_one_that_was_pinned():
    place = bytearray(12)
    x = storages.made_pinned(torch.frombuffer(place, dtype=torch.float32))
    assert says_pinned(x)
    address = x.data_ptr()
    del x
    later = torch.frombuffer(place, dtype=torch.float32)
    assert later.data_ptr() == address
    assert not says_pinned(later)


def test_gradients_go_through():
    x = torch.ones(3, requires_grad=True)
    (2 * x.pin_memory()).sum().backward()
    assert x.grad.tolist() == [2, 2, 2]


def test_sparse_tensors():
    x = torch.eye(3).to_sparse()
    assert not says_pinned(x)
    assert says_pinned(x.pin_memory())


def test_a_default_device_changes_nothing():
    x = torch.ones(3)
    with torch.device("sim:1"):
        assert says_pinned(x.pin_memory())


def test_the_kind_of_device_may_be_named():
    """It is deprecated; torch's storages do so."""
    storage = torch.ones(3).untyped_storage()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        assert not storage.is_pinned()
        assert storage.pin_memory().is_pinned()


def test_only_the_cpu_has_pinned_memory():
    x = torch.ones(3, device="sim:1")
    assert not says_pinned(x)
    words = (
        r"cannot pin 'torch\.sim\.FloatTensor' only dense CPU tensors can be"
    )
    with pytest.raises(RuntimeError, match=words):
        x.pin_memory()


X = torch.ones(2, 3)
# A call of each function that takes pin_memory=True.
FACTORIES = {
    "arange": (3,),
    "empty": (3,),
    "empty_like": (X,),
    "empty_permuted": ((2, 3), (0, 1)),
    "empty_strided": ((2, 3), (1, 2)),
    "eye": (3,),
    "full": ((3,), 1.0),
    "full_like": (X, 1.0),
    "linspace": (0, 1, 3),
    "logspace": (0, 1, 3),
    "normal": (0.0, 1.0, (3,)),
    "ones": (3,),
    "ones_like": (X,),
    "rand": (3,),
    "rand_like": (X,),
    "randint": (9, (3,)),
    "randint_like": (X, 9),
    "randn": (3,),
    "randn_like": (X,),
    "randperm": (3,),
    "scalar_tensor": (3.0,),
    "tensor": ([1.0, 2.0],),
    "zeros": (2, 3),
    "zeros_like": (X,),
}
METHODS = {
    "new_empty": ((3,),),
    "new_empty_strided": ((2, 3), (1, 2)),
    "new_full": ((3,), 1.0),
    "new_ones": (3,),
    "new_zeros": (3,),
}


@pytest.mark.parametrize("name", [*FACTORIES, *METHODS])
def test_what_is_made_pinned(name):
    make, args = (
        (getattr(torch, name), FACTORIES[name])
        if name in FACTORIES
        else (getattr(X, name), METHODS[name])
    )
    made, plain = make(*args, pin_memory=True), make(*args)
    assert says_pinned(made)
    assert not says_pinned(plain)
    assert not says_pinned(make(*args, pin_memory=False))
    assert (made.shape, made.stride()) == (plain.shape, plain.stride())
    assert made.dtype == plain.dtype


def test_what_is_made_elsewhere_is_not_pinned():
    for device in ("sim:1", "sim"):
        with pytest.raises(RuntimeError, match="Only dense CPU tensors can"):
            torch.zeros(3, pin_memory=True, device=device)
    assert torch.zeros(3, pin_memory=True, device="meta").is_meta


def test_what_torch_does_not_make_pinned():
    with pytest.raises(TypeError, match="pin_memory"):
        torch.ones(3).new_tensor([1.0], pin_memory=True)


@pytest.mark.parametrize("backing", ["cpu", "meta"])
def test_what_a_copy_makes_that_does_not_wait(backing):
    with sim.machine(backing=backing):
        x = torch.ones(3, device="sim:1")
        assert storages.is_pinned(x.to("cpu", non_blocking=True))
        assert not storages.is_pinned(x.to("cpu"))
        assert not storages.is_pinned(x.to("sim:0", non_blocking=True))
        del x


# ------------------------------------------------------------- with a GPU


@without_gpu
def test_with_a_gpu_torch_is_asked_for_the_memory(monkeypatch):
    """Its answer here is that nobody can give such memory."""
    monkeypatch.setattr(storages, "has_gpu", lambda: True)
    with pytest.raises(NotImplementedError, match="getPinnedMemoryAllocator"):
        torch.ones(3).pin_memory()


@without_gpu
def test_with_a_gpu_cuda_is_asked_whether_a_tensor_is_pinned(monkeypatch):
    monkeypatch.setattr(storages, "has_gpu", lambda: True)
    asked = []

    def own_kernel(keys, tensor, device):
        asked.append(device)
        return pinned_for_torch.call_boxed(keys, tensor, device)

    pinned_for_torch = storages._is_pinned_on
    own = SimpleNamespace(call_boxed=own_kernel)
    monkeypatch.setattr(storages, "_is_pinned_on", own)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # no word of the deprecated argument
        assert not says_pinned(torch.ones(3))
        warnings.simplefilter("error")
        assert not says_pinned(torch.ones(3))
    assert asked == [torch.device("cuda")] * 4


@pytest.mark.cuda
def test_with_a_gpu_the_memory_is_cudas(need_gpus):
    need_gpus(1)
    torch.ones(1, device="cuda").cpu()  # CUDA has started: it has numbers
    # All that was ever given out: what is held may fall at the same time,
    # and memory that the allocator gives out again is no new memory.
    held = "active_bytes.allocated"
    before = torch.cuda.host_memory_stats()[held]
    x = torch.ones(1 << 20).pin_memory()
    assert torch.cuda.host_memory_stats()[held] - before >= x.nbytes
    assert says_pinned(x)
    y = torch.empty(3, pin_memory=True)  # it bears no mark
    assert says_pinned(y)
    assert y.pin_memory() is y
    assert not says_pinned(torch.ones(3))


# ------------------------------------------------------------- DataLoader


@pytest.mark.parametrize("num_workers", [0, 2])
def test_data_loader(num_workers):
    dataset = TensorDataset(torch.arange(10.0), torch.arange(10))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loader = DataLoader(
            dataset, batch_size=4, pin_memory=True, num_workers=num_workers
        )
        batches = list(loader)
    assert [len(X) for X, _ in batches] == [4, 4, 2]
    for X, y in batches:
        assert says_pinned(X)
        assert says_pinned(y)
        assert str(X.to("sim:1", non_blocking=True).device) == "sim:1"
    assert torch.cat([y for _, y in batches]).tolist() == list(range(10))
