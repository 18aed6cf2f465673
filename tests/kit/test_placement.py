"""Tests of dpkit.placement."""

import pytest
import torch

import dpkit


@pytest.mark.parametrize("k", range(1, 6))
@pytest.mark.parametrize("rows", range(8))
def test_scatter_cuts_as_promised(get_devices, rows, k):
    """In order, on its device, the first rows % k shards one row longer."""
    devices = get_devices(k)
    x = torch.randn(rows, 2, 3)
    shards = dpkit.scatter(x, devices)
    assert [s.device for s in shards] == devices
    assert [len(s) for s in shards] == [
        rows // k + (r < rows % k) for r in range(k)
    ]
    assert torch.equal(torch.cat([s.cpu() for s in shards]), x)
    assert torch.equal(dpkit.gather(shards, "cpu"), x)


def test_scatter_of_five_rows_gives_four_shards(get_devices):
    """`x.chunk(4)` gives three."""
    assert len(torch.zeros(5, 1).chunk(4)) == 3
    shards = dpkit.scatter(torch.zeros(5, 1), get_devices(4))
    assert [len(shard) for shard in shards] == [2, 1, 1, 1]


@pytest.mark.parametrize("k", [1, 3])
def test_shards_do_not_alias(get_devices, k):
    devices = get_devices(k)
    x = torch.zeros(5, 2, device=devices[0])
    for shard in dpkit.scatter(x, devices):
        shard += 1
    assert x.sum() == 0


def test_scatter_carries_gradients(get_devices):
    x = torch.randn(5, 2, requires_grad=True)
    shards = dpkit.scatter(x, get_devices(3))
    dpkit.gather([r * s for r, s in enumerate(shards)], "cpu").sum().backward()
    assert x.grad[:, 0].tolist() == [0, 0, 1, 1, 2]


def test_gather_to_a_device(get_devices):
    devices = get_devices(2)
    whole = dpkit.gather(dpkit.scatter(torch.arange(5), devices), devices[1])
    assert whole.device == devices[1]
    assert whole.tolist() == [0, 1, 2, 3, 4]


def test_split_batch_keeps_pairs(get_devices):
    X = torch.arange(14.0).reshape(7, 2)
    X_shards, y_shards = dpkit.split_batch(X, 2 * X[:, 0], get_devices(3))
    assert [len(shard) for shard in X_shards] == [3, 2, 2]
    for X_shard, y_shard in zip(X_shards, y_shards, strict=True):
        assert torch.equal(2 * X_shard[:, 0], y_shard)


@pytest.mark.parametrize("k", range(1, 6))
def test_replicas_are_leaves_of_their_own(get_devices, k):
    devices = get_devices(k)
    source = torch.randn(3, 2, device=devices[0], requires_grad=True)
    replicas = dpkit.replicate([source], devices)
    assert [params[0].device for params in replicas] == devices
    for (p,) in replicas:
        assert p.is_leaf
        assert p.requires_grad
        assert torch.equal(p.cpu(), source.cpu())
    addresses = {p.data_ptr() for (p,) in replicas} | {source.data_ptr()}
    assert len(addresses) == k + 1


def test_replicate_takes_a_generator(get_devices):
    module = torch.nn.Linear(3, 2)
    replicas = dpkit.replicate(module.parameters(), get_devices(2))
    assert [len(params) for params in replicas] == [2, 2]


def test_no_devices():
    for act in (dpkit.scatter, dpkit.replicate):
        with pytest.raises(ValueError, match=r"\(devices: 0\)"):
            act(torch.zeros(2), [])
    with pytest.raises(ValueError, match=r"\(devices: 0\)"):
        dpkit.split_batch(torch.zeros(2), torch.zeros(2), [])
    with pytest.raises(ValueError, match=r"\(shards: 0\)"):
        dpkit.gather([], "cpu")


def test_lengths_differ(get_devices):
    with pytest.raises(ValueError, match=r"examples: 4, labels: 3"):
        dpkit.split_batch(torch.zeros(4, 2), torch.zeros(3), get_devices(2))


def test_lengths_are_compared_before_anything_is_copied():
    devices = dpkit.devices(2, "sim")
    for X, y in ((4, 3), (3, 4)):
        before = dpkit.sim.now()
        with pytest.raises(ValueError, match=f"examples: {X}, labels: {y}"):
            dpkit.split_batch(torch.zeros(X, 2), torch.zeros(y), devices)
        assert dpkit.sim.now() == before


def test_no_tensor(get_devices):
    with pytest.raises(TypeError, match=r"not a tensor \(type: list\)"):
        dpkit.scatter([1, 2], get_devices(2))
    with pytest.raises(TypeError, match="not a tensor"):
        dpkit.split_batch(torch.zeros(2), [1, 2], get_devices(2))


def test_no_dimensions(get_devices):
    with pytest.raises(ValueError, match=r"no rows to split \(x: 3.0\)"):
        dpkit.scatter(torch.tensor(3.0), get_devices(2))
    with pytest.raises(ValueError, match="no rows to split"):
        dpkit.split_batch(torch.zeros(2), torch.tensor(1.0), get_devices(2))


@pytest.mark.parametrize("device", ["sim:0", torch.device("cpu")])
def test_one_device_is_no_list(device):
    told = "not a list of devices"
    with pytest.raises(TypeError, match=told):
        dpkit.scatter(torch.ones(3), device)
    with pytest.raises(TypeError, match=told):
        dpkit.replicate([torch.ones(3)], device)
    with pytest.raises(TypeError, match=told):
        dpkit.DataParallel(torch.nn.Linear(1, 1), device)


@pytest.mark.parametrize(
    ("shards", "told"),
    [
        (
            [torch.ones(2), torch.ones(2, dtype=torch.int64)],
            "1: .* torch.int64",
        ),
        ([torch.ones(2, 3), torch.ones(2, 4)], r"1: \(2, 4\)"),
        ([torch.ones(2), torch.ones(2, 1)], r"1: \(2, 1\)"),
        ([torch.ones(())], "without dimensions"),
    ],
)
def test_shards_that_are_no_rows_of_one_tensor(shards, told):
    with pytest.raises(ValueError, match=told):
        dpkit.gather(shards, "cpu")


@pytest.mark.parametrize("device", [None, 1.5, ["cpu"]])
def test_what_is_no_device_to_gather_on(device):
    with pytest.raises(TypeError, match=r"not a device \(device: "):
        dpkit.gather([torch.ones(2)], device)
