"""``FullyShardedDataParallel``, which joins the parameters of a module."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import CPUOffload, FullyShardedDataParallel

import dpkit
from tests.forked_python import printed


def network(seed):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def begun_alike(where):
    """Return the parameters and buffers of a rank that drew others."""
    own = torch.device("sim", dist.get_rank())
    net = FullyShardedDataParallel(
        network(seed=own.index).to(where or own),
        device_id=own,
        sync_module_states=True,
    )
    with FullyShardedDataParallel.summon_full_params(net):
        return [x.detach().cpu() for x in net.state_dict().values()]


def offloaded():
    """Try to keep the parameters on the host; return the error."""
    own = torch.device("sim", dist.get_rank())
    try:
        FullyShardedDataParallel(
            network(seed=0),
            device_id=own,
            cpu_offload=CPUOffload(offload_params=True),
        )
    except NotImplementedError as error:
        return str(error)


def check(where):
    """What a child process does: PyTorch's FSDP1 leaves its memory behind."""
    dpkit.devices(2, kind="sim")
    expected = [*network(seed=0).state_dict().values()]
    for found in dpkit.sim.launch(begun_alike, 2, where):
        assert len(found) == len(expected)
        assert all(map(torch.equal, found, expected))
    for told in dpkit.sim.launch(offloaded, 2):
        assert "while its parameter is on the CPU" in told
        assert "CPUOffload(offload_params=True)" in told
        assert "CPUOffloadPolicy" in told
    print("checked")


@pytest.mark.parametrize("where", ["cpu", None])
def test_all_ranks_begin_with_what_rank_0_drew(where, forking):
    """The module is on the host, or on the GPU of its rank."""
    code = (
        f"from tests.runs.test_flat_parameters import check; check({where!r})"
    )
    assert printed(forking, code) == "checked\n"
