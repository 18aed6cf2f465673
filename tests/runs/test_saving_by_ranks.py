"""Checkpoints that PyTorch saves in a thread, and those of FSDP1."""

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict_saver import (
    AsyncCheckpointerType,
    AsyncSaveResponse,
)
from torch.distributed.fsdp import (
    FullOptimStateDictConfig,
    FullStateDictConfig,
    FullyShardedDataParallel,
    StateDictType,
)
from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh

import dpkit
from tests.forked_python import printed

pytestmark = pytest.mark.filterwarnings(
    # What PyTorch says of its own calls.
    "ignore:.*(deprecated|Multiple backends|redundantly copied).*",
)


def shards(k):
    """Return 0, 1, … of 4 k, a shard on each of k ranks."""
    mesh = init_device_mesh("sim", (k,))
    return distribute_tensor(torch.arange(4.0 * k), mesh, [Shard(0)])


def stager():
    """Return what copies beside the program, on a stream of its own."""
    return DefaultStager(
        StagingOptions(
            use_pinned_memory=False,
            use_shared_memory=False,
            use_async_staging=True,
            use_non_blocking_copy=True,
        )
    )


def save_and_load(folder, stage):
    """Save; change what was saved, before it is said to be done; load."""
    x = shards(dist.get_world_size())
    stage = {"async_stager": stager()} if stage else {}
    saved = dcp.async_save({"x": x}, checkpoint_id=folder, **stage)
    x.zero_()
    if isinstance(saved, AsyncSaveResponse):
        saved.staging_completion.result()
        saved = saved.upload_completion
    metadata = saved.result()
    dcp.load({"x": x}, checkpoint_id=folder)
    number = len(metadata.state_dict_metadata["x"].chunks)
    return x.full_tensor().tolist(), number


@pytest.mark.parametrize("stage", [False, True])
def test_every_rank_saves_its_shard(tmp_path, stage):
    for found in dpkit.sim.launch(save_and_load, 3, tmp_path, stage):
        assert found == ([float(i) for i in range(12)], 3)


def save_what_fails(folder):
    file = folder / "file"
    file.write_text("")
    return dcp.async_save({"x": shards(2)}, checkpoint_id=file / "folder")


def test_the_future_has_the_error(tmp_path):
    for future in dpkit.sim.launch(save_what_fails, 2, tmp_path):
        with pytest.raises(dcp.CheckpointException, match="Not a directory"):
            future.result()


def save_by_a_process(folder):
    kind = AsyncCheckpointerType.PROCESS
    state = {"x": shards(2)}
    dcp.async_save(state, checkpoint_id=folder, async_checkpointer_type=kind)


def test_a_process_that_saves_is_refused(tmp_path):
    with pytest.raises(RuntimeError, match=r"AsyncCheckpointerType\.THREAD"):
        dpkit.sim.launch(save_by_a_process, 2, tmp_path)


# -- FSDP1


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))


def batch():
    generator = torch.Generator().manual_seed(1)
    return torch.randn(4, 6, generator=generator)


def train(net, rows, between=lambda optimizer: None):
    """Train; between backward and the step there are gradients."""
    optimizer = torch.optim.Adam(net.parameters(), 0.05)
    for _ in range(3):
        optimizer.zero_grad()
        net(rows).square().mean().backward()
        between(optimizer)
        optimizer.step()


def whole_state(net, optimizer, rank0_only):
    how = {"offload_to_cpu": True, "rank0_only": rank0_only}
    with FullyShardedDataParallel.state_dict_type(
        net,
        StateDictType.FULL_STATE_DICT,
        FullStateDictConfig(**how),
        FullOptimStateDictConfig(**how),
    ):
        state = net.state_dict()
        return state, FullyShardedDataParallel.optim_state_dict(net, optimizer)


def train_and_save(rank0_only):
    rank = dist.get_rank()
    own = torch.device("sim", rank)
    net = FullyShardedDataParallel(network().to(own), device_id=own)
    saved = []

    def save(optimizer):
        gradients = [(p.grad, p.grad.clone()) for p in net.parameters()]
        saved.append(whole_state(net, optimizer, rank0_only))
        for p, (gradient, values) in zip(
            net.parameters(), gradients, strict=True
        ):
            assert p.grad is gradient
            assert p.device == p.grad.device == own
            assert torch.equal(p.grad, values)

    train(net, batch().chunk(2)[rank].to(own), save)
    return saved[-1]


def compare(rank0_only):
    """What a child process does: PyTorch's FSDP1 leaves its memory behind."""
    dpkit.devices(2, kind="sim")
    alone = network()
    expected = []

    def save(optimizer):
        copies = {n: x.clone() for n, x in alone.state_dict().items()}
        momenta = [s["exp_avg"].clone() for s in optimizer.state.values()]
        expected.append((copies, momenta))

    train(alone, batch(), save)
    first, second = dpkit.sim.launch(train_and_save, 2, rank0_only)
    assert {*second[0]} == (set() if rank0_only else {*first[0]})
    state, of_optimizer = first
    copies, momenta = expected[-1]
    assert {str(x.device) for x in state.values()} == {"cpu"}
    assert state.keys() == copies.keys()
    for name, momentum in zip(copies, momenta, strict=True):
        found = of_optimizer["state"][name]["exp_avg"]
        torch.testing.assert_close(state[name], copies[name])
        torch.testing.assert_close(found, momentum)
    print("compared", len(copies))


@pytest.mark.parametrize("rank0_only", [False, True])
def test_the_whole_state_of_fsdp1_goes_to_the_host(rank0_only, forking):
    """Before the last step, where there are gradients of shards."""
    code = (
        "from tests.runs.test_saving_by_ranks import compare; "
        f"compare({rank0_only})"
    )
    assert printed(forking, code) == "compared 4\n"
