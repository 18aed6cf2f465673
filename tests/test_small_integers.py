"""Small integers keep their numbers where there are no others."""

import copy
import pickle
import re

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import dpkit
from dpkit.sim.small_integers import MOST_INTEGERS, has_numbers
from tests import pipelines_on_ranks as pipelines
from tests.engines_on_ranks import ENGINES, own_device

ZERO, ONE = dpkit.devices(2, "sim")
REFUSED = "no numbers to read .device: sim:., backing: 'meta'"


@pytest.fixture
def meta():
    with dpkit.sim.machine(backing="meta"):
        yield


def whole(*numbers):
    return torch.tensor(numbers, device=ZERO)


def from_values(*shape):
    """Return small integers that come from values, and have no numbers."""
    return torch.randn(*shape, 5, device=ZERO).argmax(-1)


def refused(read, *args):
    with pytest.raises(RuntimeError, match=REFUSED):
        read(*args)


# -- a program of integers ends as on a machine with numbers

# Each step makes a tensor of two others, x and y, of shape (3, 4) or less, or
# writes to x. "values" go by floats, which have no numbers.
STEPS = {
    "add": lambda x, y: x + y,
    "values": lambda x, y: (x.float() * 2).long(),
    "compare": lambda x, y: x > y,
    "where": lambda x, y: torch.where(x > 2, y, x),
    "narrow": lambda x, y: x.to(torch.int16),
    "sum": lambda x, y: x.sum(-1),
    "all": lambda x, y: (x > 0).all(),
    "sort": lambda x, y: x.sort(-1).values,
    "argsort": lambda x, y: x.argsort(-1, stable=True),
    "stack": lambda x, y: torch.stack([x, y]).sum(0),
    "clone": lambda x, y: x.clone(),
    "deepcopy": lambda x, y: copy.deepcopy(x),
    "contiguous": lambda x, y: x.mT.contiguous().mT if x.dim() == 2 else x,
    "zeros": lambda x, y: torch.zeros_like(x),
    "new": lambda x, y: x.new_full((4,), 7),
    "there": lambda x, y: (x.to(ONE) * 3).to(ZERO),
    "cpu": lambda x, y: torch.arange(4, device=ZERO).copy_(x.cpu().sum()),
    "choose": lambda x, y: x[y.clamp(0, 0)],
    "mask": lambda x, y: x[x > 1].sum(),
    "set mask": lambda x, y: x.masked_fill_(x > 1, -2),
    "set by mask": lambda x, y: x.__setitem__(x > 1, y.sum()),
    "nonzero": lambda x, y: x.nonzero().sum(),
    "unique": lambda x, y: x.unique().sum(),
    "equal": lambda x, y: torch.tensor(torch.equal(x, y), device=ZERO),
    "count": lambda x, y: torch.full((4,), int(x.sum()) % 9, device=ZERO),
    # Views
    "rows": lambda x, y: x[1:],
    "last": lambda x, y: x[..., -1],
    "every other": lambda x, y: x[..., ::2],
    "expanded": lambda x, y: x[..., :1].expand(x.shape),
    "transposed": lambda x, y: x.mT if x.dim() == 2 else x.view(-1),
    "bytes": lambda x, y: x.contiguous().view(torch.uint8).sum(),
    "detached": lambda x, y: x.detach(),
    # In place
    "add_": lambda x, y: x.add_(y),
    "add one": lambda x, y: x.add_(1),
    "copy_": lambda x, y: x.copy_(y),
    "copy from the CPU": lambda x, y: x.copy_(torch.arange(x.shape[-1])),
    "copy from there": lambda x, y: x.copy_(y.to(ONE)),
    "fill": lambda x, y: x.fill_(4),
    "fill with": lambda x, y: x.fill_(y.sum()),
    "zero": lambda x, y: x.zero_(),
    "set a row": lambda x, y: x.__setitem__(0, 3),
    "set a piece": lambda x, y: x[..., 1:].copy_(y[..., 1:]),
    "out": lambda x, y: torch.add(y, 1, out=x),
    "out of itself": lambda x, y: torch.mul(x, 2, out=x),
    "new out": lambda x, y: torch.add(x, y, out=x.new_empty(0)),
    "nonzero out": lambda x, y: torch.nonzero(x, out=torch.empty_like(x)),
    "lists": lambda x, y: torch._foreach_add([x, y], 2)[1],
    "lists_": lambda x, y: torch._foreach_mul_([x, y], 2),
    "copy lists": lambda x, y: torch._foreach_copy_(
        [x, torch.zeros_like(y)], [x.clone(), y]
    ),
    "unsqueeze_": lambda x, y: x.clone().unsqueeze_(0).squeeze_(0),
    "t_": lambda x, y: x.clone().t_().t(),
    "index_add": lambda x, y: torch.zeros_like(x).index_add_(
        0, torch.zeros(len(x), dtype=torch.long, device=ZERO), y.expand_as(x)
    ),
    "inference": lambda x, y: add_in_inference_mode(x, y),
}


@torch.inference_mode()
def add_in_inference_mode(x, y):
    z = x + y
    z += 1
    return z.clone() if z.dim() == 0 else z.contiguous()[:]


def run(program, leave_out=()):
    """Run a program: the numbers of all its tensors, and what was refused."""
    pool = [
        torch.arange(4, device=ZERO),
        torch.tensor([[1, 5, 2, 0], [2, 2, 7, 1], [0, 9, 3, 3]], device=ZERO),
        torch.tensor([True, False, True, True], device=ZERO),
    ]
    left_out, errors = [], []
    for number, (name, first, second) in enumerate(program):
        if number in leave_out:
            continue
        x, y = (pool[i % len(pool)] for i in (first, second))
        try:
            made = STEPS[name](x, y)
        except Exception as error:
            if "no numbers to read" in str(error):
                left_out.append(number)
            else:
                errors.append((number, type(error)))
            continue
        if isinstance(made, torch.Tensor) and made.dim() <= 2:
            pool.append(made)
    forms = [(x.shape, x.stride(), x.dtype) for x in pool]
    known = [
        x.tolist() if has_numbers(getattr(x, "backing", x)) else None
        for x in pool
    ]
    memory = [torch.sim.memory_allocated(d) for d in (ZERO, ONE)]
    return known, left_out, (errors, forms, memory)


place = st.integers(0, 30)
steps = st.lists(
    st.tuples(st.sampled_from(sorted(STEPS)), place, place), max_size=12
)


@settings(max_examples=300, deadline=None)
@given(steps)
def test_what_is_known_equals_that_of_a_machine_with_numbers(program):
    with dpkit.sim.machine(backing="meta"):
        found, left_out, rest = run(program)
    with dpkit.sim.machine():
        expected, _, expected_rest = run(program, left_out)
    assert rest == expected_rest
    assert len(found) == len(expected)
    for one, other in zip(found, expected):
        assert one is None or one == other
    if not any(name == "values" for name, _, _ in program):
        assert None not in found
        assert not left_out
