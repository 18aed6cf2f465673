"""Tests of dpkit.sim.as_cuda: a block in which cuda means sim."""

import sys
import time
from pathlib import Path
from types import ModuleType

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import device_mesh
from torch.distributed import distributed_c10d as c10d
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile
from torch.utils.data import DataLoader, TensorDataset

from dpkit import sim
from dpkit.accelerator import real_devices
from dpkit.runs.cuda_names import not_modelled
from dpkit.runs.cuda_names.patches import patches
from dpkit.sim.devices import names as device_names
from dpkit.sim.devices.configuration import simulation
from dpkit.sim.memory import accounting
from dpkit.sim.memory.garbage import collect_garbage
from dpkit.sim.parallel import simulated_calls
from dpkit.sim.parallel.patches import DATA_PARALLEL
from dpkit.sim.streams.streams import SimEvent, SimStream

sim.register()

# What may be changed: modules and classes.
OWNERS = [
    *(torch, torch.accelerator, torch.amp, torch.amp.autocast_mode, torch.fft),
    *(torch.serialization, torch.cuda, torch.cuda.graphs),
    *(torch.cuda.memory, torch.cuda.nccl, torch.cuda.nvtx),
    *(torch.cuda.profiler, torch.cuda.random, torch.cuda.streams),
    *(dist, c10d, device_names, accounting),
    *(torch.Tensor, torch.UntypedStorage, torch.accelerator.device_index),
    *(torch.autocast, torch.amp.GradScaler, torch.autograd.profiler.profile),
    *(c10d.BackendConfig, DeviceMesh, FullyShardedDataParallel, nn.Module),
    device_mesh,
    nn.parallel.DistributedDataParallel,
    *(SimEvent, SimStream, sys.modules["dpkit.accelerator.found"]),
    *(simulated_calls, DATA_PARALLEL),
]


def attributes():
    """Return what can be changed, by its owner and name."""
    return {
        (str(owner), name): value
        for owner in OWNERS
        for name, value in vars(owner).items()
        if type(value) is not ModuleType and not name.startswith("__")
    }


def changed_since(before):
    """Return the owners and names of what is another object now."""
    now = attributes()
    return [
        key
        for key in before.keys() | now.keys()
        if before.get(key) is not now.get(key)
    ]


def enter_and_fail():
    with pytest.raises(ZeroDivisionError), sim.as_cuda():
        raise ZeroDivisionError


def enter_twice_at_once():
    with sim.as_cuda():
        with sim.as_cuda():
            assert torch.ones(1).cuda().is_cuda
        assert torch.ones(1).cuda().is_cuda


def enter():
    with sim.as_cuda():
        pass


@pytest.mark.parametrize("way", [enter, enter_and_fail, enter_twice_at_once])
def test_torch_is_as_before(way):
    before = attributes()
    way()
    assert changed_since(before) == []
    way()
    assert changed_since(before) == []


def test_a_loop_that_reads_the_time_ends():
    """What Python computes takes no simulated time; to read it twice does.

    In a rank a reading takes up to a millisecond on the wall.
    """
    with sim.as_cuda():
        before = sim.now()
        begin = time.perf_counter()
        torch.ones(9, device="cuda")
        end = time.perf_counter()
        # Not exact: the time since the start of a machine is a large number.
        assert end - begin == pytest.approx(sim.now() - before, abs=1e-7)
        reads = 0
        while time.perf_counter() - end < 0.3:
            reads += 1
            assert reads < 300
        late = time.perf_counter() - end - 0.3
        assert 0 < late < 0.05


def test_each_change_is_seen_by_this_test():
    """What is changed belongs to one of OWNERS."""
    before = attributes()
    with sim.as_cuda():
        names = {name for _, name in changed_since(before)}
        # ``__init__`` and the like are looked for in the block.
        missing = {
            patch.name
            for patch in patches()
            if patch.name.rpartition(".")[2] not in names
            and "__init__" not in patch.name
        }
    assert missing == set()


@pytest.mark.parametrize(
    ("owner", "name"),
    [(torch, "compile"), (torch.cuda, "memory_stats"), (torch.Tensor, "type")],
)
def test_a_torch_that_lacks_something(owner, name, monkeypatch):
    monkeypatch.setattr(owner, name, None)
    before = attributes()
    with pytest.raises(RuntimeError, match=rf"missing: torch\.\S*{name}\)"):
        enter()
    assert changed_since(before) == []


def test_values_on_a_gpu_are_refused(monkeypatch):
    monkeypatch.setattr(simulation, "backing", torch.device("cuda:0"))
    with pytest.raises(RuntimeError, match=r"backing: 'cuda:0'"):
        enter()


def test_dpkit_sees_the_gpus_that_there_are():
    gpus = real_devices()
    with sim.machine(accelerator="h100"), sim.as_cuda():
        assert real_devices() == gpus


def test_gpus_are_not_the_accelerator_in_a_block(monkeypatch):
    gpus = [torch.device("cuda:0")]
    monkeypatch.setattr(device_names, "real_devices", lambda: gpus)
    with sim.as_cuda():
        torch.accelerator.set_device_index(1)
        assert torch.ones(1, device="cuda").device == torch.device("cuda:1")
        torch.accelerator.set_device_index(0)


def test_what_was_made_in_a_block_is_on_sim():
    with sim.as_cuda():
        x = torch.ones(2, device="cuda:1")
        stream = torch.cuda.Stream(1)
    assert x.device == torch.device("sim:1") == stream.device
    assert not x.is_cuda
    assert str(x) == "tensor([1., 1.], device='sim:1')"


@pytest.mark.parametrize(
    ("where", "device"),
    [(None, "cuda:1"), ({"cuda:1": "cuda:0"}, "cuda:0"), ("cpu", "cpu")],
)
def test_a_file_that_a_gpu_wrote(where, device, tmp_path, monkeypatch):
    path = tmp_path / "weights.pt"
    with monkeypatch.context() as patch:
        patch.setattr(torch.serialization, "location_tag", lambda _: "cuda:1")
        torch.save(torch.ones(2), path)
    with sim.as_cuda():
        x = torch.load(path, where)
        assert x.device == torch.device(device)


LOOK = """
def look(x):
    event = torch.cuda.Event()
    event.record(torch.cuda.current_stream(x.device))
    return {
        str(x.device.type),
        "cuda" if x.is_cuda else "sim",
        x.type().split(".")[1],
        torch.get_device_module().__name__.rpartition(".")[2][-4:],
        torch.accelerator.current_accelerator().type,
        torch.cuda.current_stream(x.device).device.type,
        event.device.type,
    }
"""


@pytest.mark.parametrize(
    ("package", "seen"),
    [
        *[("torch.nn", "sim"), ("dpkit.clipping", "sim")],
        *[("torchvision.models", "sim"), ("torchmetrics", "cuda")],
        *[("__main__", "cuda"), ("dpkits", "cuda")],
    ],
)
def test_who_sees_which_device(package, seen):
    """Code of torch and of dpkit sees sim, all other code cuda."""
    names = {"__name__": package, "torch": torch}
    exec(LOOK, names)
    with sim.as_cuda():
        found = names["look"](torch.ones(1, device="cuda:1"))
    assert {kind.removeprefix("_") for kind in found} == {seen}


def test_dpkit_and_torch_go_on_in_a_block():
    with sim.as_cuda():
        x = torch.ones(4, 4, device="cuda", requires_grad=True)
        with torch.autocast("cuda", torch.bfloat16):
            y = torch.utils.checkpoint.checkpoint(
                lambda x: F.dropout(x @ x), x, use_reentrant=False
            )
        y.sum().backward()
        sent = torch.ones(2, device="cuda:1").to("cuda:0")
        assert x.grad.device == sent.device == torch.device("cuda:0")
    assert x.grad.device == torch.device("sim:0")


def train(kind):
    """Train with mixed precision; return what comes of it, and the time."""
    module = torch.get_device_module(kind)
    device = torch.device(f"{kind}:1")
    module.set_device(device)
    module.synchronize()
    start = simulation.clock.mark()
    torch.manual_seed(1)
    net = nn.Sequential(
        *(nn.Linear(8, 32), nn.LayerNorm(32), nn.ReLU()),
        *(nn.Dropout(0.2), nn.Linear(32, 4)),
    ).to(device)
    optimizer = torch.optim.AdamW(net.parameters(), fused=True)
    scaler = torch.amp.GradScaler(kind, init_scale=2.0**20)
    side = module.Stream()
    losses = []
    for _ in range(4):
        x = torch.randn(16, 8).pin_memory().to(device, non_blocking=True)
        target = torch.randint(0, 4, (16,), device=device)
        with torch.autocast(kind, torch.float16):
            loss = F.cross_entropy(net(x), target)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        side.wait_stream(module.current_stream())
        with module.stream(side):
            losses.append(loss.detach() + 1)
        losses.append(loss.item())
    module.synchronize()
    picoseconds = simulation.clock.mark() - start
    module.set_device(0)
    return (
        picoseconds,
        module.max_memory_allocated(device),
        scaler.get_scale(),
        [float(loss) for loss in losses],
        [p.detach().cpu() for p in net.parameters()],
    )


def test_training_for_cuda_is_training_on_sim():
    """The same to the bit, and in the same simulated time."""
    sim.register()
    collect_garbage(simulation.memory)  # what other tests have left
    torch.sim.reset_peak_memory_stats(1)
    *one, parameters = train("sim")
    torch.sim.reset_peak_memory_stats(1)
    with sim.as_cuda():
        *other, parameters_of_cuda = train("cuda")
    assert one == other
    assert all(map(torch.equal, parameters, parameters_of_cuda))
    assert one[2] < 2.0**20  # a step was skipped


@pytest.mark.parametrize("workers", [0, 1])
def test_pinned_memory_of_data_loaders(workers):
    """With workers another thread pins it."""
    data = TensorDataset(torch.arange(8.0).view(8, 1))
    with sim.as_cuda():
        torch.cuda.set_device(1)
        loader = DataLoader(
            data, batch_size=4, pin_memory=True, num_workers=workers
        )
        batches = [batch for (batch,) in loader]
        moved = [batch.cuda(non_blocking=True) for batch in batches]
        torch.cuda.set_device(0)
    assert all(batch.is_pinned() for batch in batches)
    assert [x.flatten().tolist() for x in moved] == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
    ]
    assert {x.device for x in moved} == {torch.device("sim:1")}


IN_THREADS = """
import threading
import torch
from dpkit import sim
from dpkit.sim.devices.configuration import simulation
from dpkit.sim.streams.sending import become_rank

sim.configure(num_devices=4, ranks_per_node=2, hosts="per_device")
sim.register()
become_rank(2, None, is_process=True)
simulation.first_device = 2


def look():
    tensors = torch.ones(1).cuda(), torch.ones(1).cuda(1)
    print(torch.cuda.device_count(), *[x.device for x in tensors])
    made.extend(tensors)


made = []
with sim.as_cuda():
    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
print(*[x.device for x in made])
"""


def test_threads_of_a_rank(run_new):
    """A rank that is a process has threads; they see its devices."""
    assert run_new(IN_THREADS).splitlines() == [
        "2 cuda:0 cuda:1",
        "sim:2 sim:3",
    ]


def test_a_profiler_shows_the_cpu(capfd):
    with sim.as_cuda():
        x = torch.ones(2).cuda()
        on_gpu = [ProfilerActivity.CUDA]
        for asked in (on_gpu, [ProfilerActivity.CPU, *on_gpu]):
            with profile(activities=asked, record_shapes=True) as found:
                x + x
            names = {event.key for event in found.key_averages()}
            assert "aten::add" in names
        notes = dict(not_modelled.notes)
    (sentence,) = notes
    assert sentence.startswith("torch.profiler: ")
    assert "Failed to record CUDA event" not in capfd.readouterr().err


def test_notes_name_the_line():
    with sim.as_cuda():
        nn.Linear(2, 2).compile()
        torch.cuda.memory._record_memory_history()
        notes = dict(not_modelled.notes)
        with sim.as_cuda():
            assert not_modelled.notes == notes
    compiled, recorded = notes
    assert compiled.startswith("torch.compile: ")
    assert recorded.startswith("torch.cuda.memory: ")
    for place in notes.values():
        assert place.partition(":")[0] == Path(__file__).name
    enter()
    assert not_modelled.notes == {}


def test_what_goes_past_to_cuda_is_said():
    for name in ("current_blas_handle", "MemPool"):
        errors = RuntimeError, AttributeError  # by how torch was built
        with pytest.raises(errors) as found, sim.as_cuda():
            getattr(torch.cuda, name)()
        assert found.value.__notes__ == [not_modelled.PAST]
    with pytest.raises(RuntimeError) as found, sim.as_cuda():
        raise RuntimeError("of the program")
    assert not hasattr(found.value, "__notes__")
