"""The backend "fake", which libraries take for axes of one rank."""

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

import dpkit


def test_an_axis_of_one_rank_may_be_fake():
    def program():
        names, fake = ("dp", "tp"), {"tp": "fake"}
        mesh = init_device_mesh(
            "sim", (2, 1), mesh_dim_names=names, backend_override=fake
        )
        group, x = mesh.get_group("tp"), torch.ones(2, device="sim")
        dist.all_reduce(x, group=group)
        y = torch.arange(16.0, device="sim").view(4, 4)
        cut = distribute_tensor(y, mesh, [Shard(0), Shard(1)])
        assert cut.full_tensor().equal(y)
        return x.tolist(), dist.get_backend(group), cut.to_local().shape

    found = dpkit.sim.launch(program, 2)
    assert found == [([1.0, 1.0], "fake", (2, 4))] * 2


def test_groups_of_one_rank_may_be_fake():
    """Those that come after it send as ever."""

    def program():
        groups = [dist.new_group([r], backend="fake") for r in range(2)]
        out = torch.zeros(3, device="sim")
        own = groups[dist.get_rank()]
        dist.all_gather_into_tensor(out, torch.ones(3).to(out), group=own)
        both = torch.ones(1, device="sim")
        dist.all_reduce(both, group=dist.new_group())
        return out.tolist(), both.item()

    assert dpkit.sim.launch(program, 2) == [([1.0, 1.0, 1.0], 2.0)] * 2


def test_a_fake_group_of_several_is_made():
    """As PyTorch makes it, for an axis of a mesh that nobody uses."""

    def program():
        group = dist.new_group(backend="fake")
        init_device_mesh("sim", (2,), backend_override={0: "fake"})
        x = torch.ones(1, device="sim")
        dist.all_reduce(x)
        return group.size(), x.item()

    assert dpkit.sim.launch(program, 2) == [(2, 2.0)] * 2


def test_a_fake_group_of_several_sends_nothing():
    def program():
        group = dist.new_group(backend="fake")
        dist.all_reduce(torch.ones(1, device="sim"), group=group)

    with pytest.raises(RuntimeError, match=r"'fake' sends nothing.*ranks: 2"):
        dpkit.sim.launch(program, 2)
