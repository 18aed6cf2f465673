"""Tests of refusals: only dense tensors lie on simulated devices."""

import sys

import pytest
import torch
from torch import nested, nn
from torch.nn import functional as F

from dpkit import sim

sim.register()
pytestmark = pytest.mark.filterwarnings("ignore")
ONE = torch.device("sim:1")
PARTS = [torch.ones(2), torch.ones(3)]
PLACES = torch.tensor([[0, 1], [1, 0]])


class Image(torch.Tensor):
    """A tensor of another class."""


def on_sim():
    return torch.eye(2, device=ONE)


def sparse_gradient():
    table = torch.ones(3, 2, device=ONE, requires_grad=True)
    rows = torch.tensor([0, 1], device=ONE)
    F.embedding(rows, table, sparse=True).sum().backward()


def quantized(x):
    return torch.quantize_per_tensor(x, 0.5, 0, torch.quint8)


NOT_DENSE = {
    "sparse_coo": {
        "made": lambda: torch.sparse_coo_tensor(
            PLACES, torch.ones(2), (2, 2), device="sim:1"
        ),
        "made of simulated": lambda: torch.sparse_coo_tensor(
            PLACES.to(ONE), torch.ones(2, device=ONE), (2, 2)
        ),
        "moved": lambda: torch.eye(2).to_sparse().to(ONE),
        "converted": lambda: on_sim().to_sparse(),
        "a gradient": sparse_gradient,
    },
    "sparse": {
        "made of nothing": lambda: torch.sparse_coo_tensor(
            size=(2, 2), device=ONE
        ),
        "empty": lambda: torch.empty(
            2, 2, layout=torch.sparse_coo, device=ONE
        ),
    },
    "sparse_csr": {
        "made": lambda: torch.sparse_csr_tensor(
            [0, 1], [0], [1.0], (1, 2), device=ONE
        ),
        "moved": lambda: torch.eye(2).to_sparse_csr().to(ONE),
        "converted": lambda: on_sim().to_sparse_csr(),
    },
    "sparse_csc": {"converted": lambda: on_sim().to_sparse_csc()},
    "sparse_bsr": {"converted": lambda: on_sim().to_sparse_bsr((1, 1))},
    "mkldnn": {"converted": lambda: on_sim().to_mkldnn()},
    "quantized": {
        "made": lambda: quantized(torch.ones(2, device=ONE)),
        "made of nothing": lambda: torch.empty(
            2, dtype=torch.quint8, device=ONE
        ),
        "moved": lambda: quantized(torch.ones(2)).to(ONE),
    },
    "nested": {
        "made": lambda: nested.nested_tensor(PARTS, device="sim:1"),
        "made jagged": lambda: nested.nested_tensor(
            PARTS, device=ONE, layout=torch.jagged
        ),
        "made of simulated": lambda: nested.as_nested_tensor(
            [part.to(ONE) for part in PARTS]
        ),
        "made of rows": lambda: nested.nested_tensor_from_jagged(
            torch.ones(5, device=ONE), torch.tensor([0, 2, 5], device=ONE)
        ),
        "cut": lambda: nested.narrow(
            on_sim(), 1, PLACES[0], PLACES[1], layout=torch.jagged
        ),
        "moved": lambda: nested.nested_tensor(PARTS).to(ONE),
        "moved jagged": lambda: nested.nested_tensor(
            PARTS, layout=torch.jagged
        ).to(ONE),
    },
}
CASES = [(kind, way) for kind, ways in NOT_DENSE.items() for way in ways]


@pytest.mark.parametrize(("kind", "way"), CASES)
def test_what_is_not_dense_is_refused(kind, way):
    words = (
        r"a simulated device holds dense tensors alone \(kind of tensor: "
        rf"{kind}, device: sim(:1)?\)"
    )
    with pytest.raises(NotImplementedError, match=words):
        NOT_DENSE[kind][way]()


def test_quantized_weights_are_not_simulated():
    """CUDA has no kernel for them either."""
    layer = torch.ao.nn.quantized.dynamic.Linear(2, 3)
    words = r"not simulated: .* \(operator: quantized::linear_dynamic\)"
    with pytest.raises(NotImplementedError, match=words):
        layer(on_sim())
    with sim.trace(races=True):  # which asks for what the CPU runs as well
        assert layer(torch.eye(2)).shape == (2, 3)


def test_on_the_cpu_they_are_as_before():
    assert nested.nested_tensor(PARTS).size(0) == 2
    jagged = nested.nested_tensor(PARTS, layout=torch.jagged)
    assert (2 * jagged).values().tolist() == [2] * 5
    assert jagged.to(torch.float64).dtype == torch.float64
    assert nested.as_nested_tensor(PARTS, layout=torch.jagged).is_nested
    assert torch.eye(2).to_sparse().to_dense().sum() == 2
    assert quantized(torch.ones(2)).dequantize().tolist() == [1, 1]


@pytest.mark.parametrize(
    "act",
    [
        lambda: torch.ones(3).as_subclass(Image).to(ONE),
        lambda: torch.ones(3, device=ONE).as_subclass(Image),
        lambda: nn.Parameter(torch.ones(3).as_subclass(Image)).to(ONE),
    ],
)
def test_another_class_of_tensors_is_refused(act):
    words = (
        r"a simulated tensor has a class of its own, and takes no other "
        r"\(class: Image, device: sim:1\)"
    )
    with pytest.raises(NotImplementedError, match=words):
        act()


def test_a_simulated_tensor_is_a_tensor():
    x = torch.ones(3, device=ONE)
    assert x.as_subclass(torch.Tensor).tolist() == [1, 1, 1]


STORAGES = (
    "torch.UntypedStorage(3, device='sim:1')",
    "torch.UntypedStorage([1, 2], device=torch.device('sim:1'))",
    "torch.TypedStorage(3, device='sim:1', dtype=torch.float32)",
    "torch.UntypedStorage(3).to(device='sim:1')",
)


@pytest.mark.parametrize("storage", STORAGES)
def test_a_storage_without_a_tensor_is_refused(storage, forking):
    """It ended the process."""
    program = (
        "import torch, dpkit\n"
        "dpkit.sim.register()\n"
        f"try: {storage}\n"
        "except NotImplementedError as error: print(error)"
    )
    run = forking.Popen(
        [sys.executable, "-c", program],
        stdout=forking.PIPE,
        text=True,
        start_new_session=True,
    )
    told = run.communicate()[0]
    assert run.returncode == 0
    assert told == (
        "a simulated device has no storage without a tensor (device: sim:1); "
        "torch.empty makes a tensor there\n"
    )


def test_storages_elsewhere_are_as_before():
    assert torch.UntypedStorage(3).nbytes() == 3
    assert torch.UntypedStorage([1, 2]).tolist() == [1, 2]
    assert torch.UntypedStorage(3, device="meta").device.type == "meta"
    assert len(torch.FloatStorage(3)) == 3
