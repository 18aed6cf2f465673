"""Small integers keep their numbers where there are no others."""

import copy
import pickle
import re

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn

import dpkit
from dpkit.sim.memory.small_integers import MOST_INTEGERS, has_values

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
    "out": lambda x, y: torch.bitwise_not(y, out=of_form(y, x)),
    "out of itself": lambda x, y: torch.bitwise_not(x, out=x),
    "new out": lambda x, y: torch.bitwise_not(x, out=x.new_empty(0)),
    "nonzero out": lambda x, y: torch.nonzero(x, out=x.long().clone()),
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


def of_form(like, x):
    """Return x, or where it has another form a tensor that is resized."""
    is_alike = x.dtype == like.dtype and x.shape == like.shape
    return x if is_alike else torch.empty(2, dtype=like.dtype, device=ZERO)


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
                errors.append(number)
            continue
        if isinstance(made, torch.Tensor) and made.dim() <= 2:
            pool.append(made)
    forms = [(x.shape, x.dtype) for x in pool]
    known = [
        x.tolist() if has_values(getattr(x, "backing", x)) else None
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
    all_known = not any(name == "values" for name, _, _ in program)
    # The CPU refuses some mixtures by the places in memory, "meta" does not.
    assume(all_known or rest[0] == expected_rest[0])
    assert rest == expected_rest
    assert len(found) == len(expected)
    for one, other in zip(found, expected):
        assert one is None or one == other
    if all_known:
        assert None not in found
        assert not left_out


# -- which have numbers


def test_what_comes_from_values_is_refused_by_name(meta):
    x = from_values(3)
    words = "come from values that this machine does not have; copy_"
    for read in (
        x.tolist,
        lambda: x[0].item(),
        lambda: bool((x > 1).any()),
        lambda: x.nonzero(),
        lambda: torch.ones(3, device=ZERO)[x > 1],
        lambda: torch.zeros(3, dtype=torch.long).copy_(x),
        lambda: torch.zeros(3, dtype=torch.long).copy_(x.to(ONE)),
        lambda: torch._foreach_copy_([torch.zeros(3).long()], [x]),
        lambda: pickle.dumps(x),
        lambda: x.numpy(force=True),
    ):
        with pytest.raises(RuntimeError, match=re.escape(words)):
            read()
    assert repr(x) == (
        "tensor(..., device='sim:0', size=(3,), dtype=torch.int64)"
    )


VIEWS = {
    "a piece": lambda: from_values(4)[:2],
    "a column": lambda: from_values(2, 3)[:, 0],
    "of large memory": lambda: from_values(MOST_INTEGERS + 1)[:2],
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_gets_its_numbers_as_its_error_says(meta, name):
    counts = VIEWS[name]()
    with pytest.raises(RuntimeError, match="gives no numbers to a view"):
        counts.tolist()
    counts.copy_(torch.tensor([3, 1]))
    with pytest.raises(RuntimeError, match=re.escape("or to a clone() of it")):
        counts.tolist()
    counts = counts.clone()
    with pytest.raises(RuntimeError, match="gives this tensor its numbers"):
        counts.tolist()
    counts.copy_(torch.tensor([3, 1]))
    assert counts.tolist() == [3, 1]


def test_a_view_of_all_numbers_gets_them_itself(meta):
    counts = from_values(2, 1).view(2)
    with pytest.raises(RuntimeError, match="gives this tensor its numbers"):
        counts.tolist()
    counts.copy_(torch.tensor([3, 1]))
    assert counts.tolist() == [3, 1]


@pytest.mark.parametrize(
    "write",
    [
        lambda x: x.add_(from_values(4)),
        lambda x: x[1:].copy_(from_values(3)),
        lambda x: x.__setitem__(from_values(4) > 1, 5),
        lambda x: torch.add(x, from_values(4), out=x),
        lambda x: torch._foreach_add_([x], [from_values(4)]),
        lambda x: torch._foreach_add_([x, torch.ones(2, device=ZERO)], 1),
        lambda x: x.view(torch.float64).fill_(torch.rand((), device=ZERO)),
        lambda x: x.random_(5),
        lambda x: x.untyped_storage().resize_(0),
    ],
)
def test_what_is_written_from_values_is_not_known_nor_its_views(meta, write):
    x = whole(1, 2, 3, 4)
    y, other = x[:1], whole(5)
    write(x)
    refused(y.tolist)
    assert other.tolist() == [5]


@pytest.mark.parametrize(
    "give",
    [
        lambda x: x.copy_(torch.tensor([7, 8, 9])),
        lambda x: x.copy_(whole(7, 8, 9).to(ONE)),
        lambda x: torch.add(whole(6, 7, 8), 1, out=x),
        lambda x: torch._foreach_copy_([x], [whole(7, 8, 9)]),
    ],
)
def test_numbers_are_given_by_overwriting_all(meta, give):
    x = from_values(3)
    y = x[1:]
    y.copy_(torch.tensor([8, 9]))  # a part
    refused(x.tolist)
    with pytest.raises(RuntimeError):
        x.copy_(torch.zeros(4))
    refused(x.tolist)
    give(x)
    assert (x.tolist(), y.tolist()) == ([7, 8, 9], [8, 9])


@pytest.mark.parametrize(
    "write",
    [
        lambda memory: memory.copy_(whole(7, 8, 9).untyped_storage()),
        lambda memory: memory.fill_(0),
        lambda memory: memory.__setitem__(0, 1),
    ],
)
def test_what_is_written_to_memory_itself_is_not_known(meta, write):
    x = whole(1, 2, 3)
    write(x.untyped_storage())
    refused(x[1:].tolist)


def test_what_is_resized_has_the_numbers_in_their_places(meta):
    x = torch.arange(6, device=ZERO).view(2, 3).t()
    out = torch.empty(0, dtype=torch.long, device=ZERO)
    assert torch.bitwise_not(x, out=out).tolist() == [
        [-1, -4],
        [-2, -5],
        [-3, -6],
    ]


def test_what_is_read_and_overwritten_does_not_become_known(meta):
    x = from_values(3)
    torch.add(x, 1, out=x)
    refused(x.tolist)


def test_only_small_integers_are_kept(meta):
    assert torch.ones(MOST_INTEGERS, dtype=torch.int8, device=ZERO).all()
    large = torch.ones(MOST_INTEGERS + 1, dtype=torch.int8, device=ZERO)
    refused(large[:1].tolist)
    refused(torch.ones(2, device=ZERO).tolist)
    refused(whole(1, 2).double().tolist)
    refused(torch.randint(3, (2,), device=ZERO).tolist)
    refused(torch.randint_like(whole(1, 2), 3).tolist)
    refused(torch.randperm(3, device=ZERO).tolist)


def test_a_piece_of_memory_does_not_count_for_all(meta):
    x = torch.empty_strided((2,), (2,), dtype=torch.long, device=ZERO)
    x.copy_(from_values(2))
    x.copy_(torch.tensor([1, 2]))  # every other number
    refused(x.tolist)
    x = from_values(4)
    x.as_strided((2, 2), (1, 1)).copy_(torch.tensor([[1, 2], [2, 3]]))
    refused(x.tolist)


def test_known_masks_decide_the_shape_of_what_has_no_numbers(meta):
    x = torch.rand(4, 3, device=ZERO)
    mask = whole(1, 0, 1, 1) > 0
    for m in (mask, mask.cpu(), mask.to(torch.uint8)):
        assert x[m].shape == (3, 3)
    x[mask] = torch.ones(3, 3, device=ZERO)
    assert (x[mask, whole(0, 1, 2)]).shape == (3,)
    with pytest.raises(IndexError):
        x[mask[:3]]


def test_a_tensor_on_the_cpu_has_numbers_or_none(meta):
    x = whole(3, 4)
    assert x.cpu().tolist() == [3, 4]
    assert x.to("cpu", torch.float32).tolist() == [3.0, 4.0]
    assert from_values(2).cpu().is_meta
    assert x.new_zeros(2, device="cpu").tolist() == [0, 0]


def test_what_leaves_for_meta_has_no_numbers(meta):
    """Nobody follows what is written there."""
    x = whole(3, 4).to("meta")
    x += 1
    refused(x.to(ZERO).tolist)


def test_a_deep_copy_shares_memory_as_before(meta):
    x = whole(1, 2, 3)
    first, second = copy.deepcopy([x, x[1:]])
    first += 1
    assert (first.tolist(), second.tolist()) == ([2, 3, 4], [3, 4])
    assert x.tolist() == [1, 2, 3]
    assert torch.sim.memory_allocated(ZERO) == 48


def test_an_inference_tensor_keeps_them(meta):
    with torch.inference_mode():
        x = whole(1, 2) + 1
        x += 1
        assert x.is_inference()
        assert (x[1:].tolist(), x.cpu().tolist()) == ([4], [3, 4])


def test_they_print_and_are_of_no_use_on_another_machine():
    with dpkit.sim.machine(backing="meta"):
        x = whole(3, 4)
        assert repr(x) == "tensor([3, 4], device='sim:0')"
    with pytest.raises(RuntimeError, match="another simulated machine"):
        x + x
    with pytest.raises(RuntimeError, match="another simulated machine"):
        x[0].item()


def test_modules_and_optimizers_count(meta):
    x = torch.rand(5, 3, device=ZERO)
    for settings_of_adam in ({"fused": True}, {"capturable": True}, {}):
        model = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2)).to(ZERO)
        optimizer = torch.optim.Adam(model.parameters(), **settings_of_adam)
        for _ in range(3):
            model(x).sum().backward()
            optimizer.step()
        assert model[0].num_batches_tracked.item() == 3


@pytest.mark.parametrize("bounds", [(-2, 2), (3, 4)])
def test_a_truncated_normal_draws_once(meta, bounds):
    x = nn.init.trunc_normal_(torch.empty(3, 4, device=ZERO), 0, 1, *bounds)
    assert x.shape == (3, 4)
    refused(x.tolist)


def test_with_numbers_a_truncated_normal_draws_again():
    x = nn.init.trunc_normal_(torch.empty(500, device=ZERO), a=-0.5, b=0.5)
    assert x.abs().max() <= 0.5
