"""Tests of sending, outside ranks: what is refused, and chosen."""

import sys

import pytest
import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as functional
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import dpkit
from dpkit.sim.devices import names as device_names
from dpkit.sim.streams import sending

REFUSAL = (
    r"torch\.distributed does not send what lies on a simulated device "
    r"\(operation: \w+, device: sim:1\), except in the ranks of "
    r"dpkit\.sim\.launch; dpkit\.allreduce and its like do"
)


def net_on(device):
    torch.manual_seed(3)
    return torch.nn.Linear(2, 1, device=device)


def loss_of(net, device):
    return net(torch.ones(1, 2, device=device)).sum()


def train(device, **options):
    """Run forward and backward of PyTorch's DDP."""
    net = DistributedDataParallel(net_on(device), **options)
    loss_of(net, device).backward()


# Each takes a simulated tensor.
SENDING = {
    "all_reduce": dist.all_reduce,
    "all_reduce, without gradients": torch.no_grad()(dist.all_reduce),
    "all_reduce, in inference": torch.inference_mode()(dist.all_reduce),
    "all_reduce_coalesced": lambda x: dist.all_reduce_coalesced([x]),
    "all_gather": lambda x: dist.all_gather([x.clone()], x),
    "all_gather to the CPU": lambda x: dist.all_gather([x.cpu()], x),
    "all_gather_into_tensor": lambda x: dist.all_gather_into_tensor(x, x),
    "all_to_all": lambda x: dist.all_to_all([x.clone()], [x]),
    "all_to_all_single": lambda x: dist.all_to_all_single(x, x.clone()),
    "broadcast": lambda x: dist.broadcast(x, 0),
    "broadcast_object_list": lambda x: dist.broadcast_object_list(
        [1], 0, device=x.device
    ),
    "gather": lambda x: dist.gather(x, [x.clone()], 0),
    "irecv": lambda x: dist.irecv(x, 0),
    "isend": lambda x: dist.isend(x, 0),
    "reduce": lambda x: dist.reduce(x, 0),
    "reduce_scatter": lambda x: dist.reduce_scatter(x, [x.clone()]),
    "reduce_scatter_tensor": lambda x: dist.reduce_scatter_tensor(x, x),
    "scatter": lambda x: dist.scatter(x, [x.clone()], 0),
    "functional all_reduce": lambda x: functional.all_reduce(
        x, "sum", dist.group.WORLD
    ),
    "functional all_gather_tensor": lambda x: functional.all_gather_tensor(
        x, 0, dist.group.WORLD
    ),
    "DDP": lambda x: DistributedDataParallel(net_on(x.device)),
    "DDP in backward": lambda x: train(x.device, init_sync=False),
}
# Each has to do with the CPU alone.
ALLOWED = {
    "all_reduce": lambda: dist.all_reduce(torch.ones(3)),
    "all_gather_object": lambda: dist.all_gather_object([None], 3),
    "barrier": dist.barrier,
    "barrier with a number": lambda: dist.barrier(device_ids=[0]),
    "DDP": lambda: train("cpu"),
}


def try_all():
    """Print what is refused of what sends, and what of the rest."""
    one = dpkit.devices(2, "sim")[1]
    dist.init_process_group(
        "gloo", store=dist.HashStore(), rank=0, world_size=1
    )
    refusal = pytest.raises(NotImplementedError, match=REFUSAL)
    for name, send in SENDING.items():
        x = torch.ones(3, device=one)
        with refusal:
            send(x)
        assert x.tolist() == [1, 1, 1]
        print("refused:", name)
    for name, act in ALLOWED.items():
        act()
        print("allowed:", name)
    w = torch.ones(3, device=one, requires_grad=True)
    w.sum().backward()  # the next backward is right
    assert w.grad.tolist() == [1, 1, 1]
    dist.destroy_process_group()


def test_what_would_send_simulated_tensors_is_refused(forking):
    program = "from tests.sim.test_sim_distributed import try_all; try_all()"
    run = forking.Popen(
        [sys.executable, "-c", program],
        stdout=forking.PIPE,
        stderr=forking.PIPE,
        text=True,
        start_new_session=True,
    )
    lines, errors = run.communicate()
    assert run.returncode == 0, errors
    refused = [f"refused: {name}" for name in SENDING]
    assert lines.splitlines() == [
        *refused,
        *(f"allowed: {n}" for n in ALLOWED),
    ]


def main():
    """Train on the CPU as a rank of a job; print what came of it."""
    if "registered" in sys.argv:
        dpkit.devices(2, "sim")
    dist.init_process_group()
    x = torch.ones(2) * (dist.get_rank() + 1)
    dist.all_reduce(x)
    net = fully_shard(net_on("cpu"))
    loss_of(net, "cpu").backward()
    found = dist.get_backend_config(), x, net.weight, net.weight.grad
    if dist.get_rank() == 0:
        print(*found)
    dist.destroy_process_group()


def test_what_is_chosen_by_itself_is_as_without_simulated_devices(run_ranks):
    """Such as the backend, and the devices of fully_shard."""
    module = "tests.sim.test_sim_distributed"
    registered, plain = (
        run_ranks(2, module, word) for word in ("registered", "plain")
    )
    assert registered == plain
    assert registered.startswith("cpu:gloo tensor([3., 3.]) DTensor(")


@pytest.mark.parametrize(
    ("gpus", "backend"), [([], "cpu:gloo"), (["cuda:0"], "cuda:nccl")]
)
def test_the_backend_by_itself(gpus, backend, monkeypatch):
    dpkit.sim.register()
    found = [torch.device(gpu) for gpu in gpus]
    monkeypatch.setattr(device_names, "real_devices", lambda: found)
    assert sending.default_backend() == backend
