"""Tests of dpkit.sim.tensors.storages: where what is loaded goes."""

import io
import pickle

import pytest
import torch
from torch import nn

from dpkit import sim

sim.register()


def saved(value):
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return file


def to_sim_2(storage, location):
    return torch.serialization.default_restore_location(storage, "sim:2")


# A function of a storage and a location -> where a tensor of the CPU goes,
# and where one of sim:1 goes.
FUNCTIONS = {
    "keeps the storage": (lambda storage, location: storage, "cpu", "cpu"),
    "leaves it to torch": (lambda storage, location: None, "cpu", "sim:1"),
    "moves it": (to_sim_2, "sim:2", "sim:2"),
    "asks for the location": (
        lambda storage, location: (
            to_sim_2(storage, location) if location == "sim:1" else storage
        ),
        "cpu",
        "sim:2",
    ),
}


@pytest.mark.parametrize("weights_only", [True, False])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_says_where_it_goes(name, weights_only):
    function, *expected = FUNCTIONS[name]
    for source, device in zip(("cpu", "sim:1"), expected, strict=True):
        state = nn.Linear(2, 3).to(source).state_dict()
        file = saved({"x": torch.arange(3.0, device=source), **state})
        loaded = torch.load(
            file, map_location=function, weights_only=weights_only
        )
        assert {str(t.device) for t in loaded.values()} == {device}
        assert loaded["x"].tolist() == [0, 1, 2]
        assert torch.equal(loaded["bias"].cpu(), state["bias"].cpu())


def fail(storage, location):
    raise ZeroDivisionError(location)


@pytest.mark.parametrize(
    ("where", "error"),
    [("sim:8", RuntimeError), (fail, ZeroDivisionError)],
)
def test_a_load_that_failed_leaves_nothing_behind(where, error):
    x = torch.ones(2, device="sim:1")
    pickled, file = pickle.dumps(x), saved(x)
    with pytest.raises(error):
        torch.load(file, map_location=where)
    assert pickle.loads(pickled).device == x.device
    file.seek(0)
    assert torch.load(file).device == x.device


@pytest.mark.parametrize("where", ["sim:2", torch.device("sim:2")])
def test_a_device_says_where_it_goes(where):
    for source in ("cpu", "sim:1"):
        file = saved(torch.ones(2, device=source))
        loaded = torch.load(file, map_location=where)
        assert str(loaded.device) == "sim:2"
        assert pickle.loads(pickle.dumps(loaded)).device == loaded.device
