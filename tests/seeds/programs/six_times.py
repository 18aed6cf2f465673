"""Six times: fifty products of matrices, on one GPU and on all, and copies.

A program for GPUs, which knows nothing of simulated ones.
"""

import time

import torch

SIZE = 4000


class Stopwatch:
    """Prints how long a block takes."""

    def __init__(self, name):
        self.name = name

    def __enter__(self):
        self.begun = time.time()

    def __exit__(self, *error):
        print(f"{self.name}: {time.time() - self.begun:.6f} s")


def squares(x):
    """Multiply a matrix by itself, fifty times."""
    return [x.mm(x) for _ in range(50)]


def to_host(matrices, non_blocking=False):
    """Copy matrices to the CPU."""
    return [m.to("cpu", non_blocking=non_blocking) for m in matrices]


def main():
    """Take the six times."""
    count = torch.cuda.device_count()
    print("GPUs:", count, "current:", torch.cuda.current_device())
    first = torch.rand(size=(SIZE, SIZE), device=torch.device("cuda:0"))
    with Stopwatch("not waited for"):
        squares(first)
    torch.cuda.synchronize()
    with Stopwatch("waited for"):
        squares(first)
        torch.cuda.synchronize()
    matrices = [
        torch.rand(size=(SIZE, SIZE), device=torch.device(f"cuda:{i}"))
        for i in range(count)
    ]
    with Stopwatch("on all, in turn"):
        for i in range(count):
            squares(matrices[i])
            torch.cuda.synchronize(device=torch.device(f"cuda:{i}"))
    with Stopwatch("on all at once"):
        for i in range(count):
            squares(matrices[i])
        for i in range(count):
            torch.cuda.synchronize(i)
    products = squares(matrices[0])
    torch.cuda.synchronize()
    with Stopwatch("copied to the CPU"):
        to_host(products)
        torch.cuda.synchronize()
    with Stopwatch("computed and copied"):
        products = squares(matrices[0])
        to_host(products, non_blocking=True)
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
