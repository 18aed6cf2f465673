"""Collectives of ranks are to autograd and to modes what NCCL's are."""

import pytest
import torch
import torch.distributed as dist
from torch.distributed.tensor.debug import CommDebugMode
from torch.utils._python_dispatch import TorchDispatchMode

from dpkit import sim

X = torch.arange(4.0)


def tensor(requires_grad=False):
    x = X.to("sim") + dist.get_rank()
    return x.requires_grad_(requires_grad)


def out_of(x):
    return [torch.empty_like(x) for _ in range(dist.get_world_size())]


# Each writes to the first tensor that it is given.
WRITES = {
    "all_reduce": lambda x, _: dist.all_reduce(x),
    "broadcast": lambda x, _: dist.broadcast(x, 0),
    "reduce": lambda x, _: dist.reduce(x, 0),
    "all_gather": lambda x, y: dist.all_gather([x, torch.empty_like(x)], y),
    "all_gather_into_tensor": lambda x, y: dist.all_gather_into_tensor(
        x, y[:2]
    ),
    "reduce_scatter": lambda x, y: dist.reduce_scatter(x, [y, y]),
    "reduce_scatter_tensor": lambda x, y: dist.reduce_scatter_tensor(
        x, torch.cat([y, y])
    ),
    "all_to_all": lambda x, y: dist.all_to_all(list(x.chunk(2)), [y[:2]] * 2),
    "all_to_all_single": lambda x, y: dist.all_to_all_single(x, y),
    "scatter": lambda x, y: dist.scatter(
        x, [y, y] if dist.get_rank() == 0 else None
    ),
    "gather": lambda x, y: dist.gather(
        y, [x, torch.empty_like(x)] if dist.get_rank() == 0 else None
    ),
    "message": lambda x, y: (
        dist.recv(x, 0) if dist.get_rank() else dist.send(y, 1)
    ),
}


@pytest.mark.parametrize("algorithm", ["ring", "library"])
@pytest.mark.parametrize("name", WRITES)
def test_no_version_is_raised(name, algorithm):
    def versions():
        x, y = tensor(), tensor()
        before = x._version, y._version
        WRITES[name](x, y)
        return (x._version, y._version) == before

    assert sim.launch(versions, 2, algorithm=algorithm) == [True, True]


def test_an_allreduce_between_forward_and_backward():
    """relu keeps its output; gloo and NCCL may write to it unseen."""

    def gradient():
        w = torch.ones(3, device="sim", requires_grad=True)
        x = torch.relu(w * 1)
        with torch.no_grad():
            dist.all_reduce(x)
        x.sum().backward()
        return w.grad.tolist()

    assert sim.launch(gradient, 2) == [[1, 1, 1]] * 2


def test_views_of_what_is_broadcast_stay_in_the_graph():
    def in_graph():
        x = tensor(requires_grad=True)
        first, _ = x.chunk(2)
        dist.broadcast(x.detach(), 0)
        return first.grad_fn is not None

    assert sim.launch(in_graph, 2) == [True, True]


def test_inference_tensors_have_no_version():
    @torch.inference_mode()
    def total():
        x = tensor()
        dist.all_reduce(x)
        return x.tolist()

    assert sim.launch(total, 2)[0] == [1, 3, 5, 7]


class Seen(TorchDispatchMode):
    """Notes the names of what it is shown, and where it is among modes."""

    def __init__(self, names, place=""):
        super().__init__()
        self.names, self.place = names, place

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(f"{func}{self.place}")
        return func(*args, **(kwargs or {}))


NAMES = {
    "all_reduce": "allreduce_",
    "broadcast": "broadcast_",
    "reduce": "reduce_",
    "all_gather": "allgather_",
    "all_gather_into_tensor": "_allgather_base_",
    "reduce_scatter": "reduce_scatter_",
    "reduce_scatter_tensor": "_reduce_scatter_base_",
    "all_to_all": "alltoall_",
    "all_to_all_single": "alltoall_base_",
    "scatter": "scatter_",
    "gather": "gather_",
}


def names_seen(call):
    """Return which operations of c10d a mode sees in a call, on each rank."""

    def seen():
        x, y, names = tensor(), tensor(), []
        with Seen(names):
            call(x, y)
        return [name for name in names if name.startswith("c10d.")]

    return sim.launch(seen, 2)


@pytest.mark.parametrize("name", NAMES)
def test_a_mode_sees_each_collective_once(name):
    expected = [f"c10d.{NAMES[name]}.default"]
    assert names_seen(WRITES[name]) == [expected] * 2


def test_a_mode_sees_messages_and_barriers():
    assert names_seen(WRITES["message"]) == [
        ["c10d.send.default"],
        ["c10d.recv_.default"],
    ]
    assert (
        names_seen(lambda *_: dist.barrier()) == [["c10d.barrier.default"]] * 2
    )


def test_a_mode_sees_nothing_of_how_it_is_sent():
    """The copies and the sums of a ring are dpkit's, not the program's."""

    def seen():
        x, names = tensor(), []
        with Seen(names):
            dist.all_reduce(x)
        return names, x.tolist()

    only = ["c10d.allreduce_.default"], [1, 3, 5, 7]
    assert sim.launch(seen, 2, algorithm="ring") == [only] * 2


def test_two_modes_see_it_the_inner_one_first():
    def seen():
        x, names = tensor(), []
        with Seen(names, " outer"), Seen(names, " inner"):
            dist.all_reduce(x)
        return names

    both = [f"c10d.allreduce_.default {place}" for place in ("inner", "outer")]
    assert sim.launch(seen, 2) == [both] * 2


def test_pytorch_counts_collectives():
    def counts():
        x = tensor()
        with CommDebugMode() as mode:
            dist.all_reduce(x)
            dist.broadcast(x, 0)
            dist.all_reduce(x)
        return {str(k): n for k, n in mode.get_comm_counts().items()}

    expected = {"c10d.allreduce_": 2, "c10d.broadcast_": 1}
    assert sim.launch(counts, 2) == [expected] * 2
