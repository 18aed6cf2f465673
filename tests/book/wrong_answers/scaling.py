# refused: it returned 242, expected 243
from dpkit.sim.hardware.costs import operation_seconds


def crossover(accelerator, host):
    n = 1
    while (
        operation_seconds(accelerator, flops=2 * n**3, num_bytes=12 * n**2)
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


# refused: saved [4, 9, 6], a launch of 10 µs: with the pair 0
def pair_to_fuse(times, saved, launch):
    return 0


# refused: with the pair 3 fused the step ends after 44 µs, where 43 are
def pair_to_fuse(times, saved, launch):
    return saved.index(max(saved))


# refused: with the pair 3 fused the step ends after 212 µs, where 210
def pair_to_fuse(times, saved, launch):
    host_decides = launch * len(times) > sum(times)
    return 0 if host_decides else saved.index(max(saved))


# refused: it returned (0, 1), not a position from 0 to 3
def pair_to_fuse(times, saved, launch):
    return 0, 1


# refused: [2, 2, 2], which are 6 rows
def rows_for(micros, num_rows):
    return [num_rows // len(micros) for _ in micros]


# refused: it returned [5, 4], and the step takes 8 µs, where 6 are
def rows_for(micros, num_rows):
    size, more = divmod(num_rows, len(micros))
    return [size + (rank < more) for rank in range(len(micros))]


# refused: it returned [2, 1], and the step takes 5 µs, where 3 are
def rows_for(micros, num_rows):
    rows = [1 for _ in micros]
    for _ in range(num_rows - len(micros)):
        ends = [(r + 1) * t for r, t in zip(rows, micros)]
        rows[ends.index(min(ends))] += 1
    return rows


# refused: 64 rows, [4, 7, 9, 30] µs a row
def rows_for(micros, num_rows):
    total = sum(1 / t for t in micros)
    rows = [int(num_rows / t / total) for t in micros]
    rows[micros.index(min(micros))] += num_rows - sum(rows)
    return rows


# refused: not a number for each device
def rows_for(micros, num_rows):
    total = sum(1 / t for t in micros)
    return [num_rows / t / total for t in micros]
