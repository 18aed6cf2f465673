# refused: 2 ranks: it returned
def split_layer(x_shards, W_shards, bias):
    total = [0.0] * len(bias)
    for x, W in zip(x_shards, W_shards):
        term = [sum(a * b for a, b in zip(x, column)) for column in zip(*W)]
        total = [t + s + b for t, s, b in zip(term, total, bias)]
    return [max(0.0, s) for s in total]


# refused: 1 rank: it returned [23.0, 5.0], expected [23.0, 0.0]
def split_layer(x_shards, W_shards, bias):
    total = list(bias)
    for x, W in zip(x_shards, W_shards):
        term = [sum(a * b for a, b in zip(x, column)) for column in zip(*W)]
        total = [s + max(0.0, t) for s, t in zip(total, term)]
    return total


# refused: 1 rank: it returned
def split_layer(x_shards, W_shards, bias):
    total = [0.0] * len(bias)
    for x, W in zip(x_shards, W_shards):
        term = [sum(a * b for a, b in zip(x, column)) for column in zip(*W)]
        total = [s + t for s, t in zip(total, term)]
    return [max(0.0, s) + b for s, b in zip(total, bias)]


# refused: data on 2 devices: a step takes 60 ms, where 20
def three_designs():
    return [("data", 2), ("layer", 4), ("network", 4)]


# refused: data on 8 devices: a device holds 2185 MB, where 800
def three_designs():
    return [("data", 8), ("data", 8), ("network", 4)]


# refused: network on 8 devices: a step takes 82 ms, where 70
def three_designs():
    return [("data", 8), ("network", 8), ("network", 4)]


# refused: layer on 8 devices: a step takes 548 ms, where 90
def three_designs():
    return [("data", 8), ("layer", 4), ("layer", 8)]


# refused: layer on 8 devices: fewer devices are enough
def three_designs():
    return [("data", 8), ("layer", 8), ("network", 4)]


# refused: network on 8 devices: fewer devices are enough
def three_designs():
    return [("data", 8), ("layer", 4), ("network", 8)]


# refused: take 2, 4 or 8 devices
def three_designs():
    return [("data", 3), ("layer", 4), ("network", 4)]


# refused: it returned
def least_devices(way, num_parameters, memory_bytes):
    needed = 4 * num_parameters
    if way == "data":
        return 1 if needed <= memory_bytes else None
    return -(-needed // memory_bytes)


# refused: expected None
def least_devices(way, num_parameters, memory_bytes):
    return -(-16 * num_parameters // memory_bytes)


# refused: it returned 2, expected 1
def least_devices(way, num_parameters, memory_bytes):
    needed = 16 * num_parameters
    if way == "data":
        return 1 if needed <= memory_bytes else None
    return needed // memory_bytes + 1


# refused: sends 16 (16 by an allreduce behind layer 1), where 10
def columns_or_rows(widths, between):
    return [("columns", "rows")[i % 2] for i in range(len(widths) - 1)]


# refused: (4 by an allreduce behind layer 0, 8 by an allgather behind layer 1)
def columns_or_rows(widths, between):
    last = len(widths) - 1
    narrows = [widths[i + 1] < widths[i] for i in range(last)]
    return ["rows" if less else "columns" for less in narrows]


# refused: not 2 of "columns" and "rows"
def columns_or_rows(widths, between):
    return ["copies" for _ in between] + ["copies"]


# refused: 32 by an allgather behind layer 0
def columns_or_rows(widths, between):
    return ["columns" for _ in widths[1:]]
