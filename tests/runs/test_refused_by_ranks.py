"""What NCCL's group refuses, or only a process can do, is refused by name."""

import signal

import pytest
import torch
import torch.distributed as dist

import dpkit

FACTOR = dist._make_nccl_premul_sum(3.0)


def matrix():
    return torch.arange(12.0, device="sim").view(3, 4)


def summed(x, op=dist.ReduceOp.SUM):
    dist.all_reduce(x, op)
    return x.tolist()


def remade():
    dist.destroy_process_group()
    dist.init_process_group("sim", rank=0, world_size=2)


def gathered(x):
    outs = [torch.empty(12, device="sim") for _ in range(2)]
    dist.all_gather(outs, x)


REFUSED = {
    "a rank behind the last": (
        lambda: dist.send(matrix(), 2),
        r"ValueError: .* no such rank in the group \(rank: 2, ranks: 0 to 1\)",
    ),
    "a rank before the first": (
        lambda: dist.recv(matrix(), -1),
        r"ValueError: .* no such rank in the group \(rank: -1, ranks: 0",
    ),
    "a factor of integers": (
        lambda: summed(matrix().int(), FACTOR),
        "TypeError: PreMulSum Data type must be half, float, bfloat16 or",
    ),
    "a sum of float8": (
        lambda: summed(matrix().to(torch.float8_e5m2)),
        r"TypeError: .* not supported for .*\(dtype: torch.float8_e5m2\)",
    ),
    "a sum of unsigned integers": (
        lambda: summed(matrix().to(torch.uint16)),
        r"TypeError: .* not supported for .*\(dtype: torch.uint16\)",
    ),
    "a sparse tensor": (
        lambda: summed(torch.eye(3).to_sparse()),
        r"NotImplementedError: .* dense tensors alone .*: sparse_coo\)",
    ),
    "a quantized tensor": (
        lambda: summed(
            torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.quint8)
        ),
        r"NotImplementedError: a collective sends dense tensors alone "
        r"\(operation: allreduce, kind of tensor: quantized\)",
    ),
    "a tensor with gaps": (
        lambda: summed(matrix()[:, 1]),
        r"ValueError: Tensors must be contiguous \(shape: \(3,\), strides: ",
    ),
    "a tensor in another order": (
        lambda: summed(matrix().t()),
        r"ValueError: Tensors must be contiguous \(shape: \(4, 3\), strides",
    ),
    "gaps in what is gathered": (
        lambda: gathered(torch.arange(24.0, device="sim")[::2]),
        r"ValueError: Tensors must be contiguous \(shape: \(12,\)",
    ),
    "gaps in one of a list": (
        lambda: dist.all_to_all([*matrix()[:2]], [*matrix().t()[:2]]),
        r"ValueError: Tensors must be contiguous \(shape: \(3,\)",
    ),
    "a group that is split": (
        lambda: dist.split_group(None, [[0, 1]]),
        "RuntimeError: No backend .* does not support splitting",
    ),
    "a group that is made again": (
        remade,
        "RuntimeError: a rank of dpkit.sim.launch has its process group from",
    ),
    "a signal": (
        lambda: signal.signal(signal.SIGTERM, signal.SIG_IGN),
        "RuntimeError: ranks are threads, and a process hears signals in its",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_says_why(name):
    program, words = REFUSED[name]
    with pytest.raises(RuntimeError, match=rf"rank \d failed \({words}"):
        dpkit.sim.launch(program, 2)


def images():
    shape = 2, 3, 4, 5
    x = torch.ones(shape, device="sim")
    return x.to(memory_format=torch.channels_last)


def exchange():
    """Send columns, which lie apart, from pair to pair."""
    x = matrix()
    if dist.get_rank() == 0:
        dist.send(x[:, 1], 1)
    else:
        dist.recv(x[:, 2], 0)
    return x[:, 2].tolist()


def transposed():
    """Take turned matrices, which lie in one piece, from all ranks."""
    given = [matrix().t(), matrix().t() + 1]
    outs = [torch.empty(4, 3, device="sim").t().contiguous().t()] * 2
    outs = [x.clone() for x in outs]
    dist.all_to_all(outs, given)
    return [x[1].tolist() for x in outs]


TAKEN = {
    "channels last": (
        lambda: summed(images())[0][0][0],
        [[2.0] * 5, [2.0] * 5],
    ),
    "messages with gaps": (exchange, [[2.0, 6.0, 10.0], [1.0, 5.0, 9.0]]),
    "a list in another order": (
        transposed,
        [[[1.0, 5.0, 9.0]] * 2, [[2.0, 6.0, 10.0]] * 2],
    ),
    "a sum of bytes": (
        lambda: summed(matrix()[0].to(torch.uint8)),
        [[0, 2, 4, 6]] * 2,
    ),
    "a factor of halves": (
        lambda: summed(matrix()[0].half(), FACTOR),
        [[0.0, 6.0, 12.0, 18.0]] * 2,
    ),
}


@pytest.mark.parametrize("name", TAKEN)
def test_what_lies_near_is_not_refused(name):
    program, expected = TAKEN[name]
    assert dpkit.sim.launch(program, 2) == expected


def test_signals_are_for_the_process_again():
    before = signal.getsignal(signal.SIGUSR1)
    dpkit.sim.launch(dist.get_rank, 2)
    assert signal.signal(signal.SIGUSR1, before) == before
