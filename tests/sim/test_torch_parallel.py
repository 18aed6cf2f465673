"""Tests of dpkit.sim.parallel: torch.nn.parallel in one process."""

import doctest
import warnings
from collections import Counter

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.cuda import comm

from dpkit import sim
from dpkit.sim.parallel.copies import OF_COMM
from dpkit.sim.parallel.patches import parallel_patches
from tests.sim.parallel_examples import BEFORE, EXAMPLES

sim.register()


def failures(kind, name):
    """Run a text on a kind of device; return what is not as it says."""
    text = (BEFORE + EXAMPLES[name]).replace("KIND", kind)
    test = doctest.DocTestParser().get_doctest(text, {}, name, None, 0)
    lines = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(
            test, out=lines.append
        )
    return "".join(lines)


@pytest.mark.parametrize("name", EXAMPLES)
def test_simulated_devices(name):
    with sim.machine(num_devices=2):
        assert failures("sim", name) == ""


@pytest.mark.parametrize("name", EXAMPLES)
def test_cuda_that_means_simulated_devices(name):
    with sim.machine(num_devices=2), sim.as_cuda():
        assert failures("cuda", name) == ""


@pytest.mark.cuda
@pytest.mark.parametrize("name", EXAMPLES)
def test_gpus(name, need_gpus):
    need_gpus(2)
    assert failures("cuda", name) == ""


@pytest.mark.cuda
@pytest.mark.parametrize("name", EXAMPLES)
def test_simulated_devices_beside_gpus(name):
    with sim.machine(num_devices=2):
        assert failures("sim", name) == ""


def test_each_forward_copies_and_each_backward_sends_back():
    """The parameters to k - 1 devices, and as many gradients to the first."""
    with sim.machine(num_devices=3):
        net = nn.DataParallel(nn.Linear(100, 10).to("sim:0"), [0, 1, 2])
        x = torch.randn(7, 100, device="sim:0")
        for _ in range(2):
            with sim.trace() as timeline:
                net(x).square().sum().backward()
            copies = Counter()
            for span in timeline.spans:
                if span.name.startswith("copy from"):  # where it arrives
                    copies[span.name, span.device] += span.num_bytes
            model = 4 * (100 * 10 + 10)
            rows = {1: 3, 2: 1}  # torch.chunk cuts 7 as 3, 3, 1
            assert copies == {
                **{
                    ("copy from sim:0", f"sim:{r}"): model + 4 * n * 110
                    for r, n in rows.items()
                },
                **{
                    (f"copy from sim:{r}", "sim:0"): model + 4 * n * 10
                    for r, n in rows.items()
                },
            }


@pytest.mark.parametrize(
    "send",
    [
        lambda x, outs: comm.broadcast(x, [0, 1]),
        lambda x, outs: comm.broadcast(x, out=outs),
        lambda x, outs: comm.scatter(x, [0, 1]),
        lambda x, outs: comm.scatter(x, out=[out[:1] for out in outs]),
    ],
    ids=["broadcast", "broadcast, out", "scatter", "scatter, out"],
)
def test_the_host_does_not_wait_for_what_it_sends(send):
    """From pinned memory it goes on, so that all devices get it at once."""
    with sim.machine(num_devices=2):
        x = torch.ones(2, 1000).pin_memory()
        outs = [torch.ones(2, 1000, device=f"sim:{r}") for r in range(2)]
        with sim.trace() as timeline:
            send(x, outs)
        copies = [s for s in timeline.spans if s.kind == "copy"]
        assert {s.device for s in copies} == {"sim:0", "sim:1"}
        assert "wait" not in {s.kind for s in timeline.spans}


def test_replicas_compute_at_the_same_time():
    with sim.machine(num_devices=4, host="eager-program"):
        net = nn.Sequential(*(nn.Linear(2048, 2048) for _ in range(4)))
        x = torch.randn(4096, 2048, device="sim:0")
        seconds = []
        for k in (1, 4):
            parallel = nn.DataParallel(net.to("sim:0"), list(range(k)))
            with sim.trace() as timeline:
                parallel(x)
            seconds.append(timeline.summary().devices["sim:0"].busy)
        assert seconds[1] == pytest.approx(seconds[0] / 4, rel=0.1)


@pytest.mark.skipif(torch.cuda.is_available(), reason="torch uses a GPU here")
def test_a_module_on_the_cpu_stays_there():
    net = nn.Linear(2, 1)
    x = torch.ones(3, 2)
    assert torch.equal(nn.DataParallel(net)(x), net(x))
    assert torch.equal(nn.DataParallel(net, device_ids=[0, 1])(x), net(x))


def test_a_module_without_parameters_is_where_its_buffers_are():
    with sim.machine(num_devices=2):
        net = nn.DataParallel(nn.BatchNorm1d(2, affine=False).to("sim:0"))
        assert net.device_ids == [0, 1]
        assert net(torch.ones(4, 2)).device == torch.device("sim:0")


@pytest.mark.skipif(torch.cuda.is_available(), reason="torch uses a GPU here")
def test_a_module_that_has_moved_since():
    net = nn.DataParallel(nn.Linear(2, 1)).to("sim:0")
    with pytest.raises(RuntimeError, match=r"move it before, or give device_"):
        net(torch.ones(3, 2))


def test_the_second_node_has_its_own_devices():
    """Numbers are those of a program on its node."""

    def parameters_and_gradients():
        found = None
        if dist.get_rank() == 2:
            net = nn.DataParallel(nn.Linear(2, 2).cuda())
            x = torch.ones(3, 2, requires_grad=True).cuda()
            x.retain_grad()
            net(x).sum().backward()
            gradient = net.module.weight.grad
            found = net.device_ids, gradient.device, x.grad.shape
        dist.barrier()
        return found

    with sim.machine(num_devices=4, ranks_per_node=2), sim.as_cuda():
        found = sim.launch(parameters_and_gradients, 4)[2]
    assert found == ([0, 1], torch.device("cuda:0"), torch.Size([3, 2]))


def test_a_torch_that_is_built_without_cuda(monkeypatch):
    """It has none of the functions of C++; they are added, not changed."""
    for name in OF_COMM:
        monkeypatch.delattr(torch._C, name)
    changes = [p for p in parallel_patches() if p.name.startswith("torch._C.")]
    assert len(changes) == len(OF_COMM)
    for change in changes:
        assert change.fits()
        undo = change.apply()
        name = change.name.rpartition(".")[2]
        assert vars(torch._C)[name] is OF_COMM[name]
        undo()
        assert name not in vars(torch._C)
