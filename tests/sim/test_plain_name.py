"""Tests of dpkit.sim.devices.names: "sim" without a number is one device."""

import copy
import pickle
import sys

import pytest
import torch
from torch import distributions as D
from torch import nn

import dpkit
from dpkit import sim
from dpkit.sim.changes.change import StandIn

sim.register()
ONE = torch.device("sim:1")
PLAIN = torch.device("sim")


@pytest.fixture
def at_one():
    """Let plain "sim" mean sim:1."""
    torch.sim.set_device(1)
    yield
    torch.sim.set_device(0)


# Ways to name a device without its number.
WAYS = {
    "to": lambda: torch.ones(2).to("sim"),
    "to a device": lambda: torch.ones(2).to(PLAIN, torch.float64),
    "to, by name": lambda: torch.ones(2).to(device="sim"),
    "to, from sim:0": lambda: torch.ones(2, device="sim:0").to("sim"),
    "module": lambda: nn.Linear(2, 2).to("sim").weight,
    "made module": lambda: nn.Linear(2, 2, device="sim").weight,
    "tensor": lambda: torch.tensor([1.0], device="sim"),
    "as_tensor": lambda: torch.as_tensor([1.0], device=PLAIN),
    "asarray": lambda: torch.asarray([1.0], device="sim"),
    "new_tensor": lambda: torch.ones(2).new_tensor([1.0], device="sim"),
    "new_tensor of sim:0": lambda: torch.ones(2, device="sim:0").new_tensor(
        [1.0], device="sim"
    ),
    "new_zeros": lambda: torch.ones(2).new_zeros(3, device="sim"),
    "zeros": lambda: torch.zeros(2, device="sim"),
    "zeros_like": lambda: torch.zeros_like(torch.ones(2), device="sim"),
    "sim()": lambda: torch.ones(2).sim(),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_name_without_a_number(way, at_one):
    assert WAYS[way]().device == ONE


@pytest.mark.parametrize("way", ["to", "tensor", "asarray", "module"])
def test_in_a_replica_it_is_the_device_of_the_replica(way):
    class Net(nn.Module):
        def forward(self, x):
            return x + WAYS[way]().sum().detach()

    net = dpkit.DataParallel(Net(), dpkit.devices(2, kind="sim"))
    assert net(torch.ones(4, 3)).shape == (4, 3)


@pytest.mark.parametrize("block", ["sim", PLAIN, "sim:1", ONE])
def test_in_a_block_with_a_default_device(block, at_one):
    with torch.device(block):
        made = [torch.ones(2), torch.tensor(1.0), torch.as_tensor([1.0])]
        made += [torch.asarray([1.0]), nn.Linear(2, 2).weight]
    assert {t.device for t in made} == {ONE}


def test_the_default_device_follows_the_current_one(at_one):
    torch.set_default_device("sim")
    try:
        assert torch.tensor(1.0).device == torch.ones(2).device == ONE
        torch.sim.set_device(2)
        made = torch.tensor(1.0), torch.ones(2)
        assert {str(t.device) for t in made} == {"sim:2"}
        assert str(torch.get_default_device()) == "sim:2"
    finally:
        torch.set_default_device(None)


def test_a_number_is_left_as_it_is(at_one):
    assert torch.ones(2).to("sim:0").device == torch.device("sim:0")
    with torch.device("sim:0"):
        assert torch.tensor(1.0).device == torch.device("sim:0")
    assert torch.tensor(1.0).device == torch.device("cpu")


@pytest.mark.parametrize(
    "asked", [(), (2, 3), (torch.Size([2]),), ([1.0, 2.0],), ((3, 4),)]
)
def test_new_tensors_in_the_old_way(asked):
    on_cpu = torch.ones(1).new(*asked)
    on_sim = torch.ones(1, device=ONE).new(*asked)
    assert on_sim.device == ONE
    assert (on_sim.shape, on_sim.dtype) == (on_cpu.shape, on_cpu.dtype)
    if asked and type(asked[0]) in (list, tuple):  # they are the numbers
        assert on_sim.tolist() == on_cpu.tolist()


def test_new_tensor_of_a_tensor_has_the_same_memory():
    x = torch.zeros(2, device=ONE)
    x.new(x).add_(1)
    assert x.tolist() == [1, 1]


# ----------------------------------------------------------- distributions

# Numbers for each, in the order in which it takes them.
A, B = [0.3, 0.6], [1.0, 2.0]
PAIR = {
    "Bernoulli": [A],
    "Beta": [B, B],
    "Binomial": [[5.0, 3.0], A],
    "Categorical": [A],
    "Cauchy": [A, B],
    "Chi2": [B],
    "ContinuousBernoulli": [A],
    "Dirichlet": [B],
    "Exponential": [B],
    "FisherSnedecor": [B, [3.0, 5.0]],
    "Gamma": [B, B],
    "GeneralizedPareto": [A, B, A],
    "Geometric": [A],
    "Gumbel": [A, B],
    "HalfCauchy": [B],
    "HalfNormal": [B],
    "InverseGamma": [B, B],
    "Kumaraswamy": [B, B],
    "LKJCholesky": [3, [0.5]],
    "Laplace": [A, B],
    "LogNormal": [A, B],
    "LogisticNormal": [A, B],
    "LowRankMultivariateNormal": [A, [[1.0], [1.0]], B],
    "Multinomial": [5, A],
    "MultivariateNormal": [A, [[1.0, 0.0], [0.0, 1.0]]],
    "NegativeBinomial": [[5.0, 3.0], A],
    "Normal": [A, B],
    "OneHotCategorical": [A],
    "OneHotCategoricalStraightThrough": [A],
    "Pareto": [B, B],
    "Poisson": [B],
    "RelaxedBernoulli": [[0.5], A],
    "RelaxedOneHotCategorical": [[0.5], A],
    "StudentT": [[3.0, 4.0]],
    "Uniform": [A, B],
    "VonMises": [A, B],
    "Weibull": [B, B],
    "Wishart": [[9.0], [[1.0, 0.0], [0.0, 1.0]]],
}
# They are made of others.
COMPOSED = {
    "Independent": lambda normal: D.Independent(normal, 1),
    "MixtureSameFamily": lambda normal: D.MixtureSameFamily(
        D.Categorical(torch.ones_like(normal.loc)), normal
    ),
    "TransformedDistribution": lambda normal: D.TransformedDistribution(
        normal, [D.ExpTransform()]
    ),
}
ABSTRACT = {"Distribution", "ExponentialFamily"}


def made(name, device):
    if name in COMPOSED:
        return COMPOSED[name](made("Normal", device))
    numbers = [
        torch.tensor(n, device=device) if isinstance(n, list) else n
        for n in PAIR[name]
    ]
    return getattr(D, name)(*numbers)


def answers(name, device):
    """Return a sample and all that a distribution says of it."""
    torch.manual_seed(3)
    distribution = made(name, device)
    sample = distribution.sample((3,))
    found = {"sample": sample, "log_prob": distribution.log_prob(sample)}
    for question in ("mean", "variance", "entropy", "cdf"):
        try:
            answer = getattr(distribution, question)
            if question == "entropy":
                answer = answer()
            elif question == "cdf":
                answer = answer(sample)
        except NotImplementedError:
            continue
        found[question] = answer
    return found


@pytest.mark.parametrize("name", [*PAIR, *COMPOSED])
def test_distribution(name):
    found, expected = answers(name, "sim:1"), answers(name, "cpu")
    assert list(found) == list(expected)
    for question, answer in found.items():
        assert answer.device == ONE
        torch.testing.assert_close(
            answer.cpu(), expected[question], rtol=0, atol=0, equal_nan=True
        )


def test_all_distributions_are_there():
    classes = {
        name
        for name in D.__all__
        if isinstance(getattr(D, name), type)
        and issubclass(getattr(D, name), D.Distribution)
    }
    assert classes - ABSTRACT == {*PAIR, *COMPOSED}


# --------------------------------------------------------------- stand-ins


def test_what_stands_in_for_a_function_equals_it():
    """Such as in torchvision's set of methods that return an image."""
    for owner, name in ((torch.Tensor, "to"), (torch, "tensor")):
        stand_in = getattr(owner, name)
        assert type(stand_in) is StandIn
        assert stand_in == stand_in.original
        assert stand_in.original in {stand_in}
        assert stand_in in {stand_in.original}
        assert repr(stand_in) == repr(stand_in.original)
    assert torch.tensor != torch.as_tensor
    assert torch.tensor != "tensor"


def test_what_stands_in_is_pickled_and_copied():
    assert pickle.loads(pickle.dumps(torch.tensor)) is torch.tensor
    assert copy.deepcopy(torch.tensor) is torch.tensor


def on_the_cpu(x):
    y = torch.zeros(3) + torch.zeros_like(x) + torch.full((3,), 2.0)
    return y.to(torch.float64) + torch.tensor(1.0) + torch.arange(3)


PROGRAM = """
import torch, torchvision.tv_tensors, dpkit
from tests.sim.test_plain_name import on_the_cpu
image = torchvision.tv_tensors.Image(torch.zeros(3, 2, 2))
dpkit.devices(2, kind="sim")
x = torch.ones(3)
for made in (
    torch.jit.script(on_the_cpu),
    torch.jit.trace(on_the_cpu, x),
    torch.compile(on_the_cpu, backend="aot_eager", fullgraph=True),
    torch.fx.symbolic_trace(on_the_cpu),
):
    assert made(x).tolist() == [3, 4, 5], made
assert torch.func.vmap(on_the_cpu)(x[None]).tolist() == [[3, 4, 5]]
print(type(image.to(torch.float64)).__name__)
"""


def test_code_for_the_cpu_is_scripted_traced_and_compiled_as_before(forking):
    run = forking.Popen(
        [sys.executable, "-c", PROGRAM],
        stdout=forking.PIPE,
        stderr=forking.PIPE,
        text=True,
        start_new_session=True,
    )
    told, error = run.communicate()
    assert run.returncode == 0, error
    assert told == "Image\n"


@pytest.mark.parametrize("name", ["to", "new_zeros", "new_tensor"])
def test_methods_are_pickled(name):
    method = getattr(torch.Tensor, name)
    assert pickle.loads(pickle.dumps(method)) == method
    x = torch.arange(3.0)
    bound = pickle.loads(pickle.dumps(getattr(x, name)))
    argument = "cpu" if name == "to" else [3]
    assert torch.equal(bound(argument), getattr(x, name)(argument))


@pytest.mark.parametrize("name", ["zeros", "tensor", "as_tensor"])
def test_functions_are_pickled(name):
    function = getattr(torch, name)
    assert pickle.loads(pickle.dumps(function)) == function
