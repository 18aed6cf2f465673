"""Bytes that live on simulated devices: exact, and they run out."""

import copy
import gc
import pickle
from collections import deque

import pytest
import torch
from torch import nn
from torch.distributed._tools.memory_tracker import MemoryTracker
from torch.distributed.device_mesh import _get_device_handle
from torch.utils.checkpoint import checkpoint

import dpkit
from dpkit.sim.devices.configuration import simulation
from dpkit.sim.memory.accounting import size

ZERO, ONE = dpkit.devices(2, "sim")
KB = 1000


def live(device=ZERO):
    return torch.sim.memory_allocated(device)


@pytest.fixture
def before():
    gc.collect()
    torch.sim.reset_peak_memory_stats(ZERO)
    return live()


def kilobytes(count, device=ZERO):
    return torch.ones(count * KB // 4, device=device)


def test_a_tensor_counts_until_it_is_gone(before):
    x = kilobytes(3)
    assert live() == before + 3 * KB
    del x
    assert live() == before


def test_devices_count_apart(before):
    x = kilobytes(3, ONE)
    assert live() == before
    y = x.to(ZERO)
    assert live() == before + 3 * KB
    del y


def test_views_cost_nothing_and_keep_their_storage(before):
    x = kilobytes(3)
    views = [x[10:], x.view(2, -1), x.t(), x.detach(), x.expand(5, -1)]
    assert live() == before + 3 * KB
    del x
    assert live() == before + 3 * KB
    del views
    assert live() == before


def test_in_place_operations_cost_nothing(before):
    x = kilobytes(3)
    x.add_(1).mul_(2)
    torch.add(x, 1, out=x)
    assert live() == before + 3 * KB


def test_the_peak_is_the_most_at_once(before):
    x = kilobytes(3)
    y = x + 1
    del y
    assert live() == before + 3 * KB
    assert torch.sim.max_memory_allocated(ZERO) == before + 6 * KB
    torch.sim.reset_peak_memory_stats(ZERO)
    assert torch.sim.max_memory_allocated(ZERO) == before + 3 * KB


def test_what_autograd_saves_counts(before):
    x = kilobytes(3).requires_grad_()
    y = x.sin().exp()  # x and y are saved, the sine is not
    assert live() == before + 6 * KB
    z = (y * y).sum()
    z.backward()
    del y, z
    assert live() == before + 6 * KB  # x and its gradient


def test_checkpoints_save_less():
    def peak(run):
        x = kilobytes(3).requires_grad_()
        gc.collect()
        torch.sim.reset_peak_memory_stats(ZERO)
        start = live()
        run(x).sum().backward()
        return torch.sim.max_memory_allocated(ZERO) - start

    def layer(x):
        return x.sin().cos().tanh().exp()

    def plain(x):
        return layer(layer(layer(x)))

    def checkpointed(x):
        for _ in range(3):
            x = checkpoint(layer, x, use_reentrant=False)
        return x

    assert peak(checkpointed) < peak(plain)


def test_growing_counts(before):
    x = kilobytes(3)
    x.resize_(2000)
    assert live() == before + 8 * KB
    del x
    assert live() == before


def test_copies_in_python_count(before):
    x = kilobytes(3)
    loaded = pickle.loads(pickle.dumps(x))
    assert live() == before + 6 * KB
    del loaded
    assert live() == before + 3 * KB


def test_a_training_step_gives_back_what_it_took(before):
    net = nn.Sequential(nn.Linear(30, 20), nn.ReLU(), nn.Linear(20, 10))
    net.to(ZERO)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)

    def step():
        net(torch.ones(7, 30, device=ZERO)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    step()
    at_rest = live()
    for _ in range(3):
        step()
        assert live() == at_rest
    assert at_rest == before + 4 * (30 * 20 + 20 + 20 * 10 + 10)


def test_past_the_capacity_torch_s_words():
    with dpkit.sim.machine(memory_bytes=10 * KB + live()):
        x = kilobytes(8)
        with pytest.raises(torch.OutOfMemoryError) as caught:
            kilobytes(3)
        words = str(caught.value)
        assert "sim out of memory. Tried to allocate 2.93 KiB." in words
        assert "sim:0 has a total capacity of" in words
        assert "1.95 KiB is free" in words
        assert torch.sim.mem_get_info(ZERO)[0] == 2 * KB
        kilobytes(2)  # what fits still fits
        del x, caught


def test_out_of_memory_in_backward_and_on():
    """The error arrives whole, and a smaller batch trains."""
    with dpkit.sim.machine(memory_bytes=100 * KB + live()):
        w = kilobytes(4).requires_grad_()
        start = live()

        reached = []

        def step(rows):
            x = torch.zeros(rows, 1, device=ZERO)
            loss = (x * w).exp().exp().sum()  # keeps two tensors of rows × w
            reached.append(rows)
            loss.backward()  # makes a third

        step(5)
        assert torch.equal(w.grad.cpu(), torch.zeros(1000))
        w.grad = None
        gc.disable()
        try:
            step(10)
        except torch.OutOfMemoryError as error:
            words = str(error)
        finally:
            gc.enable()
        assert "Tried to allocate 39.06 KiB" in words
        assert reached == [5, 10]
        w.grad = None
        assert live() == start  # at once, without a collection
        step(5)
        assert torch.equal(w.grad.cpu(), torch.zeros(1000))


def test_a_model_larger_than_a_device_fits_on_many():
    """Eight times a device's memory: refused on one, spread over 16."""
    layers = [nn.Linear(100, 99) for _ in range(64)]
    model = nn.Sequential(*layers)
    total = 64 * 4 * 100 * 100  # bytes: 99 × 100 weights and 99 + 1 biases
    assert sum(p.nbytes for p in model.parameters()) == total - 64 * 4
    with dpkit.sim.machine(num_devices=16, memory_bytes=total // 8):
        with pytest.raises(torch.OutOfMemoryError, match="sim:0 has a total"):
            copy.deepcopy(model).to("sim:0")
        for i, layer in enumerate(layers):
            layer.to(f"sim:{i % 16}")
        assert {live(i) for i in range(16)} == {(total - 64 * 4) // 16}
        assert layers[63].weight.device == torch.device("sim:15")


@pytest.mark.parametrize(
    ("num_bytes", "words"),
    [
        (0, "0 bytes"),
        (1024, "1024 bytes"),
        (1025, "1.00 KiB"),
        (2**20, "1024.00 KiB"),
        (5 * 2**20, "5.00 MiB"),
        (3 * 2**31, "6.00 GiB"),
    ],
)
def test_sizes_read_as_in_torch_s_messages(num_bytes, words):
    assert size(num_bytes) == words


def test_growing_past_the_capacity_leaves_the_tensor_as_it_was():
    with dpkit.sim.machine(memory_bytes=10 * KB + live()):
        x = kilobytes(3)
        start = live()
        with pytest.raises(torch.OutOfMemoryError, match="Tried to allocate"):
            x.resize_(100 * KB)
        assert live() == start
        assert x.untyped_storage().nbytes() == 3 * KB
        assert x.numel() == x.sum() == 750


def test_what_grows_needs_room_for_what_is_added():
    with dpkit.sim.machine(memory_bytes=10 * KB + live()):
        before = live()
        x = kilobytes(6)
        x.resize_(8 * KB // 4)  # 6 and 8 together would not fit
        assert live() == before + 8 * KB


def test_what_does_not_fit_is_refused_before_memory_is_taken():
    """Ten terabytes, which no machine that runs this has."""
    with pytest.raises(torch.OutOfMemoryError, match=r"9313\.23 GiB"):
        torch.ones(10**13 // 4, device=ZERO)


def test_an_interrupted_release_is_made_up_for(before):
    """Storages that go are noted without Python, and counted when asked."""
    x = kilobytes(3)
    memory = simulation.memory
    del x
    assert len(memory._gone) == 1
    assert live() == before
    assert len(memory._gone) == 0


class EmptiedBesideUs(deque):
    """Another thread takes the last storage between a look and a grasp."""

    def __bool__(self):
        self.clear()
        return True

    __len__ = __bool__


def test_another_thread_takes_what_is_gone(before, monkeypatch):
    memory = simulation.memory
    monkeypatch.setattr(memory, "_gone", EmptiedBesideUs())
    x = kilobytes(1)
    assert live() == before + KB
    storage = x.untyped_storage()
    held = memory._storages[storage._cdata]
    del x, storage  # the stub learns of it, and forgets it
    monkeypatch.undo()
    memory._gone.append(held)
    assert live() == before


def test_a_storage_of_another_size(before):
    x = kilobytes(4)
    view = x[:10]
    x.untyped_storage().resize_(0)
    assert live() == before
    x.untyped_storage().resize_(6 * KB)
    assert live() == before + 6 * KB
    assert torch.sim.max_memory_allocated(ZERO) == before + 6 * KB
    del x
    assert live() == before + 6 * KB
    del view
    assert live() == before


def test_a_storage_too_large_keeps_its_size(before):
    x = kilobytes(4)
    with pytest.raises(torch.OutOfMemoryError, match="sim:0 has a total"):
        x.untyped_storage().resize_(2**50)
    assert x.untyped_storage().nbytes() == 4 * KB
    assert live() == before + 4 * KB


def test_a_storage_of_the_cpu_counts_nowhere(before):
    torch.ones(3).untyped_storage().resize_(2**20)
    assert live() == before


def test_a_storage_of_another_size_without_numbers():
    with dpkit.sim.machine(backing="meta"):
        x = kilobytes(4)
        x.untyped_storage().resize_(0)
        assert live() == 0
        x.untyped_storage().resize_(8 * KB)
        assert live() == 8 * KB


@pytest.mark.parametrize("backing", ["cpu", "meta"])
def test_memory_is_freed_and_taken_again_where_most_is_in_use(backing):
    """As FSDP does with the weights of each block: 600 of 1,000 kB."""
    with dpkit.sim.machine(backing=backing, memory_bytes=1000 * KB):
        x = kilobytes(600)
        for _ in range(3):
            x.untyped_storage().resize_(0)
            assert live() == 0
            y = kilobytes(900)
            del y
            x.untyped_storage().resize_(600 * KB)
            assert live() == 600 * KB
        x.untyped_storage().resize_(700 * KB)
        x.untyped_storage().resize_(600 * KB)
        with pytest.raises(torch.OutOfMemoryError):
            x.untyped_storage().resize_(1001 * KB)
        assert live() == 600 * KB
        del x


def test_a_block_keeps_its_category_when_its_storage_is_resized():
    w = torch.ones(5, device=ZERO, requires_grad=True)
    with dpkit.sim.trace() as timeline:
        w.sum().backward()
        w.untyped_storage().resize_(40)
    sizes = {
        b.num_bytes for b in timeline.blocks if b.category == "parameters"
    }
    assert {20, 40} <= sizes


def test_a_storage_at_the_address_of_one_that_is_gone(before):
    """The one that is gone is still to be released."""
    y = torch.ones(4)
    x = kilobytes(1)
    memory, key = simulation.memory, y.untyped_storage()._cdata
    held = memory._storages.pop(x.untyped_storage()._cdata)
    held.key = key
    memory._storages[key] = held
    memory._gone.append(held)
    y.untyped_storage().resize_(1000)
    assert y.untyped_storage().nbytes() == 1000
    assert live() == before


def test_statistics_have_the_names_of_cuda():
    x = torch.ones(256, device=ONE)
    torch.sim.reset_peak_memory_stats(ONE)
    before = torch.sim.memory_stats(ONE)
    y = torch.ones(512, device=ONE)
    del y
    stats = torch.sim.memory_stats(ONE)
    for kind in ("allocated_bytes", "active_bytes", "reserved_bytes"):
        now, most = f"{kind}.all.current", f"{kind}.all.peak"
        assert stats[now] == before[now] == torch.sim.memory_allocated(ONE)
        assert stats[most] == before[most] + 2048
    assert (
        torch.sim.memory_reserved(ONE) == stats["reserved_bytes.all.current"]
    )
    assert torch.sim.max_memory_reserved(1) == stats["reserved_bytes.all.peak"]
    text = torch.sim.memory_summary(ONE)
    assert (
        f"allocated_bytes.all.peak: {torch.sim.max_memory_reserved(1)}" in text
    )
    del x


def test_how_often_memory_was_out_is_counted():
    counts = [torch.sim.memory_stats(d)["num_ooms"] for d in (ZERO, ONE)]
    for _ in range(2):
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty(2**40, device=ONE)
    found = [torch.sim.memory_stats(d)["num_ooms"] for d in (ZERO, ONE)]
    assert found == [counts[0], counts[1] + 2]
    torch.sim.reset_accumulated_memory_stats(ONE)
    assert torch.sim.memory_stats(ONE)["num_ooms"] == 0
    assert torch.sim.memory_stats(ONE)["num_alloc_retries"] == 0


def test_pytorchs_tracker_of_memory_reads_them():
    layer = torch.nn.Linear(3, 4).to(ZERO)
    before = torch.sim.memory_allocated()
    tracker = MemoryTracker()
    tracker.start_monitor(layer)
    y = layer(torch.ones(5, 3, device=ZERO))
    tracker.stop()
    *_, (_, reserved) = tracker.memories_reserved.values()
    assert reserved * 2**20 >= before + y.nbytes
    assert _get_device_handle("sim").memory_summary()
