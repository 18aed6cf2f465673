# refused: where the work takes
import dpkit


def seconds_of(work, devices):
    dpkit.synchronize(devices)
    start = dpkit.sim.now()
    work()
    return dpkit.sim.now() - start


# refused: was busy before
import dpkit


def seconds_of(work, devices):
    start = dpkit.sim.now()
    work()
    dpkit.synchronize(devices)
    return dpkit.sim.now() - start


# refused: after the end of product 0
def overlapped(x, count):
    return [(x @ x).to("cpu") for _ in range(count)]


# refused: it made 1 products, not 6
def overlapped(x, count):
    return [(x @ x).cpu()] * count


# refused: it returned 2
def largest_batch(step):
    return 2


# refused: attempts
import torch


def largest_batch(step):
    rows = 1
    while True:
        try:
            step(rows)
        except torch.OutOfMemoryError:
            return rows - 1
        rows += 1
