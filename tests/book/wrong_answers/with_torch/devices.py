# refused: where the work takes
import dpkit


def seconds_of(work, devices):
    dpkit.synchronize(devices)
    start = dpkit.sim.now()
    work()
    return dpkit.sim.now() - start


# refused: where the work takes
import dpkit


def seconds_of(work, devices):
    dpkit.synchronize(devices[:1])
    start = dpkit.sim.now()
    work()
    dpkit.synchronize(devices[:1])
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


# refused: after the end of product 0
def overlapped(x, count):
    return [(x @ x).to("cpu", non_blocking=True) for _ in range(count)]


# refused: after the end of product 0
import torch


def overlapped(x, count):
    copies = torch.sim.Stream(x.device)
    results = []
    for _ in range(count):
        y = x @ x
        copies.wait_stream(torch.sim.current_stream(x.device))
        with torch.sim.stream(copies):
            results.append(y.to("cpu"))
    return results


# refused: it returned Tensor, not a list of 6 copies
import torch


def overlapped(x, count):
    return torch.stack([(x @ x).cpu() for _ in range(count)])


# refused: copy 0 starts before its product is done
import torch


def overlapped(x, count):
    copies = torch.sim.Stream(x.device)
    results = []
    for _ in range(count):
        y = x @ x
        with torch.sim.stream(copies):
            results.append(y.to("cpu", non_blocking=True))
    return results


# refused: it made 1 products, not 6
def overlapped(x, count):
    return [(x @ x).cpu()] * count


# refused: it returned 2
def largest_batch(step):
    return 2


# refused: it tried a batch of 0
import torch


def largest_batch(step):
    rows = 0
    while True:
        try:
            step(rows)
        except torch.OutOfMemoryError:
            return rows - 1
        rows += 1


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


# refused: copy 0 starts
import torch


def overlapped(x, count):
    products = [x @ x for _ in range(count)]
    copies = torch.sim.Stream(x.device)
    copies.wait_stream(torch.sim.current_stream(x.device))
    results = []
    with torch.sim.stream(copies):
        for y in products:
            results.append(y.to("cpu", non_blocking=True))
            y.record_stream(copies)
    return results


# refused: the memory of a product is free before its copy has ended
import torch


def overlapped(x, count):
    copies = torch.sim.Stream(x.device)
    results = []
    for _ in range(count):
        y = x @ x
        copies.wait_stream(torch.sim.current_stream(x.device))
        with torch.sim.stream(copies):
            results.append(y.to("cpu", non_blocking=True))
    return results
