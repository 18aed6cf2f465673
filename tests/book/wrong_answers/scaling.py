# refused: it returned 242, expected 243
from dpkit.theory.hardware.costs import operation_seconds


def crossover(accelerator, host):
    n = 1
    while (
        operation_seconds(accelerator, 2 * n**3, 12 * n**2)
        <= host.launch_seconds
    ):
        n += 1
    return n - 1


# refused: v100-pcie with launches of 80 µs
def crossover(accelerator, host):
    return 243


# refused: weak scaling, seconds {1: 4.0
def speedups(seconds, weak):
    return {k: seconds[1] / measured for k, measured in seconds.items()}


# refused: weak scaling, seconds {3: 25.0
def speedups(seconds, weak):
    first = next(iter(seconds.values()))
    return {k: (k if weak else 1) * first / s for k, s in seconds.items()}


# refused: strong scaling, seconds {1: 4.0
def speedups(seconds, weak):
    return {k: k * seconds[1] / measured for k, measured in seconds.items()}


# refused: not a number for each of [1, 2, 4]
def speedups(seconds, weak):
    return [seconds[1] / measured for measured in seconds.values()]


# refused: it returned 0, expected 1
def best_num_devices(unsplit, split, added):
    return int((split / added) ** 0.5)


# refused: it returned 317, expected 316
def best_num_devices(unsplit, split, added):
    return max(1, round(((unsplit + split) / added) ** 0.5))


# refused: expected 316
from math import ceil


def best_num_devices(unsplit, split, added):
    return max(1, ceil((split / added) ** 0.5))


# refused: 4 devices, tree=True
def replicate_seconds(sizes, k, alpha, beta, tree, together):
    num_messages = 1 if together else len(sizes)
    return (k - 1) * (num_messages * alpha + sum(sizes) * beta)


# refused: together=True
def replicate_seconds(sizes, k, alpha, beta, tree, together):
    rounds = (k - 1).bit_length() if tree else k - 1
    return rounds * (len(sizes) * alpha + sum(sizes) * beta)
