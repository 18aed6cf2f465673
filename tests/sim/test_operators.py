"""Every operator of PyTorch's own database, on ``sim:1`` and on the CPU.

All sample inputs in float32, or 12 of them drawn at random: the outputs, the
gradients, the in-place variant and ``out=`` equal the CPU's to the bit. What
is excused stands in the lists below with its reason, and fails the test when
it begins to pass.
"""

import random
from collections.abc import Callable
from functools import cache, partial
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only

from dpkit import sim
from tests.weekly import few_of

sim.register()
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


def full_name(op: Any) -> str:
    return f"{op.name}.{op.variant_test_name}".rstrip(".")


SPARSE = "a sparse layout has no strides that a device could be told"
UNWRITTEN = "PyTorch does not write to `out` of a subclass of Tensor"
EXCUSED = {
    ("sparse.sampled_addmm", "forward"): SPARSE,
    ("sparse.sampled_addmm", "backward"): SPARSE,
    ("sparse.sampled_addmm", "in place"): SPARSE,
    ("sparse.sampled_addmm", "out"): SPARSE,
    ("sparse.mm.reduce", "forward"): SPARSE,
    ("sparse.mm.reduce", "backward"): SPARSE,
    ("sparse.mm.reduce", "out"): SPARSE,
    ("to_sparse", "forward"): SPARSE,
    ("linalg.matrix_rank", "out"): UNWRITTEN,
    ("linalg.matrix_rank.hermitian", "out"): UNWRITTEN,
}
# PyTorch takes another formula for subclasses of Tensor: equal up to rounding.
ROUNDED = {
    ("prod", "backward"),
    ("masked.prod", "backward"),
    ("norm.nuc", "out"),
    ("linalg.cond", "out"),
    ("linalg.norm", "out"),
}
# The other formula may round alike, with the kernels of some CPUs.
ROUNDED_ON_SOME_CPUS = {("linalg.matrix_norm", "out")}
TORCH = tuple(int(n) for n in torch.__version__.split(".")[:2])
if TORCH < (2, 13):
    ROUNDED |= {
        ("cumprod", "backward"),
        ("masked.cumprod", "backward"),
        ("linalg.vander", "backward"),
    }
# Some operators have a thousand, and take seconds.
MOST_SAMPLES = 12
# The last digits depend on where in memory the numbers lie.
UNSTEADY = {"linalg.lstsq", "linalg.lstsq.grad_oriented"}
UNSTEADY = UNSTEADY if TORCH < (2, 15) else set()
# One sample has to fail still, whichever it is.
HELD_TO_FAIL = {name for name, _ in [*EXCUSED, *ROUNDED]}
# Their values are whatever the memory holds: shapes and dtypes are compared.
UNINITIALIZED = {
    "empty",
    "empty_like",
    "empty_permuted",
    "empty_strided",
    "new_empty",
    "new_empty_strided",
}

Pair = tuple[Any, Any]
Samples = Callable[[], list[Pair]]


@cache
def operators() -> dict[str, Any]:
    """Import the database here: no other worker should take the seconds."""
    from torch.testing._internal.common_methods_invocations import op_db

    return {full_name(op): op for op in op_db if torch.float32 in op.dtypes}


# ------------------------------------------------- the four ways to call one


def forward(op: Any, sample: Any) -> Any:
    """Call the operator; the other ways take what it made from the sample."""
    sample.made = op(sample.input, *sample.args, **sample.kwargs)
    return sample.made


def backward(op: Any, sample: Any) -> list[Tensor]:
    outputs = [t for t in tensors(sample.made) if t.requires_grad]
    inputs = [t for t in tensors(parts(sample)) if t.requires_grad]
    if not outputs or not inputs:
        return []
    ones = [torch.ones_like(t) for t in outputs]
    gradients = torch.autograd.grad(
        outputs, inputs, ones, retain_graph=True, allow_unused=True
    )
    return [g for g in gradients if g is not None]


def in_place(op: Any, sample: Any) -> Pair:
    copies = tree_map_only(Tensor, lambda t: t.detach().clone(), parts(sample))
    x, args, kwargs = copies
    result = op.get_inplace()(x, *args, **kwargs)
    assert result is x or not isinstance(x, Tensor)
    return x, result


@torch.no_grad()
def into_out(op: Any, sample: Any) -> Pair:
    empty = tree_map_only(
        Tensor,
        lambda t: torch.empty(0, dtype=t.dtype, device=t.device),
        sample.made,
    )
    result = op(sample.input, *sample.args, **sample.kwargs, out=empty)
    return empty, result


WAYS: dict[str, tuple[Callable[..., Any], Callable[[Any], bool]]] = {
    "forward": (forward, lambda op: True),
    "backward": (backward, lambda op: bool(op.supports_autograd)),
    "in place": (in_place, lambda op: op.get_inplace() is not None),
    "out": (into_out, lambda op: bool(op.supports_out)),
}


# ---------------------------------------------------------------- comparing


def parts(sample: Any) -> Any:
    return sample.input, sample.args, sample.kwargs


def tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def described(tree: Any) -> list[Any]:
    return [(t.shape, t.dtype, t.requires_grad) for t in tensors(tree)]


def to_cpu(t: Tensor) -> Tensor:
    t = t.detach().cpu()
    return torch.view_as_real(t) if t.dtype == torch.complex32 else t


def numbers(tree: Any) -> list[Any]:
    """Return the leaves that are compared, tensors moved to the CPU."""
    return [
        to_cpu(leaf) if isinstance(leaf, Tensor) else torch.tensor(leaf)
        for leaf in tree_leaves(tree)
        if isinstance(leaf, (Tensor, bool, int, float, complex))
    ]


def same(a: Tensor, b: Tensor) -> bool:
    """Tell quickly what is so nearly always; NaN is not equal to itself."""
    return a.dtype == b.dtype and torch.equal(a, b)


def compare(found: Any, expected: Any, tolerance: float | None = 0.0) -> None:
    """Assert equal shapes and dtypes, and numbers unless tolerance is None."""
    assert described(found) == described(expected)
    if tolerance is None:
        return
    ours, theirs = numbers(found), numbers(expected)
    if len(ours) != len(theirs) or not all(map(same, ours, theirs)):
        torch.testing.assert_close(
            ours, theirs, rtol=tolerance, atol=tolerance, equal_nan=True
        )


def seed() -> None:
    """Seed all, without the millisecond that torch.manual_seed() takes."""
    torch.default_generator.manual_seed(0)
    torch.sim.manual_seed_all(0)
    random.seed(0)
    numpy.random.seed(0)


def samples_on(op: Any, device: str) -> list[Any]:
    """Do what op.sample_inputs() does, without its search of the stack."""
    seed()
    gradients = bool(op.supports_autograd)
    samples = iter(op.sample_inputs_func(op, device, torch.float32, gradients))
    found = []
    while True:
        seed()
        try:
            found.append(next(samples))
        except StopIteration:
            return found


def moved(samples: list[Any]) -> list[Any]:
    """Move samples to ``sim:1``; keep what is no tensor.

    Batch norm changes its statistics, a tensor that its samples share.
    """
    copies: dict[int, Tensor] = {}

    def move(x: Any) -> Any:
        if not isinstance(x, Tensor):
            return x
        if id(x) not in copies:
            copy = x.detach().to("sim:1").requires_grad_(x.requires_grad)
            copies[id(x)] = copy
        return copies[id(x)]

    return [sample.transform(move) for sample in samples]


def can_be_moved(sample: Any) -> bool:
    """Tell whether tensors stay as they lie, and no argument names the CPU.

    Of a view, the rest of the storage would be left behind.
    """
    leaves = tree_leaves(parts(sample))
    if any(isinstance(leaf, (torch.device, str)) for leaf in leaves):
        return False
    return all(
        t.layout == torch.strided
        and t.untyped_storage().nbytes() == t.nbytes
        and torch.empty_like(t).stride() == t.stride()
        for t in tensors(leaves)
    )


def has_no_kernel_on_the_cpu(name: str, sample: Any) -> bool:
    """Return whether CUDA has a kernel, which drops by a seed and rounds.

    Attention with dropout or a mask that learns: see test_attention.py.
    """
    mask = sample.kwargs.get("attn_mask")
    learns = mask is not None and mask.requires_grad
    drops = sample.kwargs.get("dropout_p", 0) > 0
    return name == "nn.functional.scaled_dot_product_attention" and (
        learns or drops
    )


def pairs(name: str) -> list[Pair]:
    """Return samples, each on the CPU and on ``sim:1``.

    To move them is quicker than to draw them there, which is done where it
    would make a difference.
    """
    op = operators()[name]
    on_cpu = samples_on(op, "cpu")
    chosen = [
        i
        for i, sample in enumerate(on_cpu)
        if not has_no_kernel_on_the_cpu(name, sample)
    ]
    if name not in HELD_TO_FAIL:
        most = min(MOST_SAMPLES, len(chosen))
        chosen = random.Random(0).sample(chosen, most)
    on_cpu = [on_cpu[i] for i in chosen]
    on_sim = None
    if not all(map(can_be_moved, on_cpu)):
        on_sim = drawn_on_sim(op, chosen, on_cpu)
    on_sim = on_sim or moved(on_cpu)
    return [
        tuple(SimpleNamespace(input=s.input, args=s.args, kwargs=s.kwargs)
              for s in pair)
        for pair in zip(on_cpu, on_sim, strict=True)
    ]  # fmt: skip


def drawn_on_sim(
    op: Any, chosen: list[int], on_cpu: list[Any]
) -> list[Any] | None:
    """Return the same samples, or None: some are others on other devices."""
    found = samples_on(op, "sim:1")
    on_sim = [found[i] for i in chosen if i < len(found)]
    try:
        for a, b in zip(on_cpu, on_sim, strict=True):
            compare(tensors(parts(b)), tensors(parts(a)))
    except (AssertionError, ValueError):
        return None
    return on_sim


def check(op: Any, way: str, tolerance: float | None, samples: Samples) -> int:
    """Compare the samples in one way; return how many the CPU can do."""
    call, _ = WAYS[way]
    count = 0
    for a, b in samples():
        try:
            seed()
            expected = call(op, a)
        except Exception:
            continue  # not on the CPU either
        seed()
        found = call(op, b)
        asked = str(tree_map_only(Tensor, lambda t: t.device, parts(b)))
        if "sim" in asked and "cpu" not in asked:
            assert {t.device.type for t in tensors(found)} <= {"sim"}
        compare(found, expected, tolerance)
        count += 1
    return count


def check_operator(name):
    """Check all ways to call an operator."""
    op, samples = operators()[name], cache(partial(pairs, name))
    for way, (_, applies) in WAYS.items():
        if not applies(op):
            continue
        if (name, way) in EXCUSED:
            with pytest.raises(Exception):  # noqa: B017, PT011
                check(op, way, 0.0, samples)
        elif (name, way) in ROUNDED:
            check(op, way, 1e-5, samples)
            with pytest.raises(AssertionError):
                check(op, way, 0.0, samples)
        elif name in UNSTEADY or (name, way) in ROUNDED_ON_SOME_CPUS:
            check(op, way, 1e-5, samples)
        else:
            tolerance = None if name in UNINITIALIZED else 0.0
            count = check(op, way, tolerance, samples)
            if way == "forward":
                # Those compile CUDA code: there is nothing on the CPU.
                assert (count == 0) == ("jit" in name)


PARTS = 8


@pytest.mark.parametrize("part", few_of(range(PARTS), [0]))
def test_operators(part):
    """A test for many, whose names are not known before their import."""
    wrong = {}
    for name in list(operators())[part::PARTS]:
        print(name, flush=True)  # the last one, if it ends the process
        try:
            check_operator(name)
        except (Exception, pytest.fail.Exception) as error:
            wrong[name] = repr(error)
    assert not wrong


def test_the_database_is_large():
    """That nothing above passes for want of samples."""
    assert len(operators()) > 600
    samples = cache(partial(pairs, "add"))
    for way in WAYS:
        assert check(operators()["add"], way, 0.0, samples) > 5


def test_excused_operators_exist():
    excused = [*EXCUSED, *ROUNDED, *ROUNDED_ON_SOME_CPUS]
    named = {name for name, _ in excused} | UNINITIALIZED
    assert named <= set(operators())
