"""Tests of torch.func and of tracing on simulated devices: as on the CPU."""

from functools import partial

import pytest
import torch
from torch import func, nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves, tree_map_only

from dpkit import sim

sim.register()
pytestmark = pytest.mark.filterwarnings("ignore")

torch.manual_seed(0)
NET = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
PARAMS = {name: p.detach() for name, p in NET.named_parameters()}
X, A, Y = torch.randn(5, 3), torch.randn(3, 3), torch.tensor([0, 1, 1, 0, 1])
STACK = torch.randn(4, 3, 3)


def net(params, x):
    return func.functional_call(NET, params, (x,))


def loss(params, x, y):
    return F.cross_entropy(net(params, x), y)


def linearized(function, *primals):
    out, derivative = func.linearize(function, *primals)
    return out, derivative(*[torch.ones_like(p) for p in primals])


def ones(x):
    return torch.ones_like(x)


# Each with the tensors that it takes.
TRANSFORMS = {
    "vmap": (lambda x: func.vmap(lambda r: r.sort()[0] * 2)(x), X),
    "vmap over one": (lambda x: func.vmap(torch.dot, (0, None))(x, x[0]), X),
    "vmap of products": (func.vmap(lambda m: m @ m.T), STACK),
    "vmap of inverses": (func.vmap(torch.linalg.inv), STACK),
    "vmap in chunks": (func.vmap(torch.sin, chunk_size=2), X),
    "vmap of factories": (
        func.vmap(lambda r: torch.zeros(3, device=r.device).add(r)),
        X,
    ),
    "vmap with dropout": (
        func.vmap(lambda r: F.dropout(r), randomness="different"),
        X,
    ),
    "vmap with random numbers": (
        func.vmap(lambda r: r + torch.randn_like(r), randomness="same"),
        X,
    ),
    "vmap in place": (func.vmap(lambda r: r.clone().add_(1).mul_(r)), X),
    "grad": (func.grad(lambda x: (x**3).sum()), X),
    "grad of two": (
        func.grad(lambda a, x: (x @ a).square().sum(), argnums=(0, 1)),
        A,
        X,
    ),
    "grad and value": (func.grad_and_value(lambda x: (x**3).sum()), X),
    "a gradient per example": (
        func.vmap(
            func.grad(lambda p, x, y: loss(p, x[None], y[None])), (None, 0, 0)
        ),
        PARAMS,
        X,
        Y,
    ),
    "functional_call": (net, PARAMS, X),
    "vjp": (lambda x: func.vjp(torch.sin, x)[1](ones(x)), X),
    "jvp": (lambda x: func.jvp(torch.sin, (x,), (ones(x),)), X),
    "jvp of a net": (
        lambda p, x: func.jvp(lambda z: net(p, z), (x,), (ones(x),)),
        PARAMS,
        X,
    ),
    "vmap of jvp": (
        func.vmap(lambda r: func.jvp(torch.sin, (r,), (ones(r),))),
        X,
    ),
    "jacrev": (func.jacrev(lambda a: (a @ a).sin()), A),
    "jacfwd": (func.jacfwd(lambda a: (a @ a).sin()), A),
    "jacrev of a net": (func.jacrev(loss), PARAMS, X, Y),
    "hessian": (func.hessian(lambda a: (a @ a).sin().sum()), A),
    "functionalize": (func.functionalize(lambda x: x.clone().add_(1)), X),
    "linearize": (lambda x: linearized(lambda z: (z**2).sin(), x), X),
    "linearize a net": (
        lambda p, x: linearized(lambda z: net(p, z), x),
        PARAMS,
        X,
    ),
    "linearize of two": (
        lambda a, x: linearized(lambda b, z: (z @ b, z.exp().sum()), a, x),
        A,
        X,
    ),
    "make_fx": (lambda x: make_fx(lambda z: z.sin() * 2)(x)(x + 1), X),
    "autograd's hessian": (
        lambda a: torch.autograd.functional.hessian(lambda b: (b**3).sum(), a),
        A,
    ),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transform(name):
    transform, *inputs = TRANSFORMS[name]
    results = []
    for device in ("cpu", "sim:1"):
        to = partial(torch.Tensor.to, device=device)
        moved = tree_map_only(torch.Tensor, to, inputs)
        torch.manual_seed(3)
        results.append(tree_leaves(transform(*moved)))
    expected, found = results
    assert len(found) == len(expected) > 0
    for a, b in zip(found, expected, strict=True):
        assert str(a.device) == "sim:1"
        assert torch.equal(a.cpu(), b)


def test_a_derivative_that_was_linearized_serves_again():
    x = torch.arange(3.0, device="sim:1")
    _, derivative = func.linearize(lambda z: z**2, x)
    for factor in (1, 2):
        assert derivative(factor * ones(x)).tolist() == [
            0,
            2 * factor,
            4 * factor,
        ]
