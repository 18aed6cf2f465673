"""What ranks reduce by: NCCL's operations, its own among them."""

import pytest
import torch
import torch.distributed as dist
from torch.distributed import ReduceOp

from dpkit import sim

ALGORITHMS = ["ring", "star", "library"]
K = 3
GIVEN = [[6, -7, 8], [2, 0, -9], [5, 5, -1]]  # by rank


def given(dtype=torch.int64):
    return torch.tensor(GIVEN[dist.get_rank()], dtype=dtype, device="sim")


def reduced_each_way(op, dtype):
    """Return what all_reduce, reduce and reduce_scatter leave."""
    x, y, z = given(dtype), given(dtype), given(dtype)
    dist.all_reduce(x, op)
    dist.reduce(y, 1, op)
    part = torch.empty(1, dtype=dtype, device="sim")
    dist.reduce_scatter_tensor(part, z, op)
    untouched = dist.get_rank() == 1 or y.tolist() == given(dtype).tolist()
    return x.tolist(), y.tolist(), part.tolist(), untouched


def check(op, dtype, expected, algorithm):
    found = sim.launch(reduced_each_way, K, op, dtype, algorithm=algorithm)
    for rank, (of_all, of_root, part, untouched) in enumerate(found):
        assert of_all == pytest.approx(expected)
        assert part == pytest.approx([expected[rank]])
        assert untouched
        if rank == 1:
            assert of_root == pytest.approx(expected)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("dtype", [torch.int64, torch.float32])
def test_products(dtype, algorithm):
    check(ReduceOp.PRODUCT, dtype, [60, 0, 72], algorithm)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_sums_of_what_is_multiplied_before(algorithm):
    """As FSDP2 asks for them; a half of 13, -2 and -2."""
    half = dist._make_nccl_premul_sum(0.5)
    check(half, torch.float32, [6.5, -1, -1], algorithm)


def test_the_factor_comes_before_the_sum():
    """In half precision, 60000 + 60000 would be infinite."""

    def total():
        x = torch.full((2,), 60000.0, dtype=torch.float16, device="sim")
        dist.all_reduce(x, dist._make_nccl_premul_sum(0.25))
        return x.tolist()

    assert sim.launch(total, 2) == [[30000, 30000]] * 2


def test_the_factor_takes_no_time():
    def seconds(op):
        x = torch.ones(1000, device="sim")
        torch.sim.synchronize()
        begin = sim.now()
        dist.all_reduce(x, op)
        torch.sim.synchronize()
        return sim.now() - begin

    plain, scaled = (
        sim.launch(seconds, 2, op, algorithm="library")
        for op in (ReduceOp.SUM, dist._make_nccl_premul_sum(0.5))
    )
    assert scaled == pytest.approx(plain)


def refused(op, dtype=torch.float32):
    def reduce():
        dist.all_reduce(given(dtype), op)

    with pytest.raises(RuntimeError) as caught:
        sim.launch(reduce, K)
    return str(caught.value)


def test_what_nccl_refuses_is_refused_by_name():
    for op in (ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR):
        words = refused(op, torch.int64)
        assert "does not reduce so (op: B" in words
        assert "known: SUM, AVG, MAX, MIN, PRODUCT, PREMUL_SUM" in words
    assert "AVG with bool inputs" in refused(ReduceOp.AVG, torch.bool)
    words = refused(ReduceOp.AVG, torch.int64)
    assert "no ReduceOp.AVG of integers (dtype: torch.int64)" in words
    factor = dist._make_nccl_premul_sum(torch.tensor(0.5))
    assert "is a number on the backend sim, and no tensor" in refused(factor)


def test_an_operation_fails_on_all_its_ranks():
    """More is taken than given: each rank can catch it, and all go on."""

    def caught():
        x = given()
        try:
            dist.all_gather_into_tensor(x.repeat(4), x)
        except RuntimeError as error:
            words = str(error)
        y = given()
        dist.all_reduce(y)
        return "differ in size" in words, y.tolist()

    assert sim.launch(caught, K) == [(True, [13, -2, -2])] * K


def test_lists_are_gathered_together():
    """``outs[r]`` takes the list of rank r."""

    def gathered():
        rank = dist.get_rank()
        mine = [torch.full((n,), 10 * rank + n, device="sim") for n in (1, 2)]
        outs = [[torch.empty_like(x) for x in mine] for _ in range(2)]
        dist.all_gather_coalesced(outs, mine)
        return [[x.tolist() for x in out] for out in outs]

    expected = [[[1], [2, 2]], [[11], [12, 12]]]
    assert sim.launch(gathered, 2) == [expected] * 2
