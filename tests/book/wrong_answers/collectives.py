# refused: µs
def size_that_splits(p, rates):
    steps = p.bit_length() - 1
    whole, parts = steps * rates.beta, (p - 1) / p * 2 * rates.beta
    return steps * rates.alpha / (whole - parts)


# refused: at 640002 bytes they take 18.080044 and 18.0800315 µs
def size_that_splits(p, rates):
    steps = p.bit_length() - 1
    whole = steps * (rates.beta + rates.gamma)
    parts = (p - 1) / p * (2 * rates.beta + rates.gamma)
    return steps * rates.alpha / (whole - parts) + 2


# refused: at 639998 bytes they take 18.079956 and 18.0799685 µs
def size_that_splits(p, rates):
    steps = p.bit_length() - 1
    whole = steps * (rates.beta + rates.gamma)
    parts = (p - 1) / p * (2 * rates.beta + rates.gamma)
    return steps * rates.alpha / (whole - parts) - 2


# refused: not a number of bytes
def size_that_splits(p, rates):
    print("it depends")


# refused: 3 ranks: a port sends 2.0
from dpkit.plans.plan import Plan
from dpkit.plans.trees import tree_broadcast


def large_broadcast(p):
    return Plan("tree", p, 1, tree_broadcast(p))


# refused: not chunk
from dpkit.plans.plan import Message, Plan


def large_broadcast(p):
    steps = [[Message(0, r, r, r + 1)] for r in range(1, p)]
    return Plan("scatter", p, p, steps)


# refused: steps, where
from dpkit.plans.plan import Message, Plan
from dpkit.plans.rings import ring_allgather


def large_broadcast(p):
    steps = [[Message(0, r, r, r + 1)] for r in range(1, p)]
    steps += ring_allgather(range(p), [(r, r + 1) for r in range(p)])
    return Plan("long", p, p, [*steps, [Message(p - 1, 0, 0, 1)]])


# refused: 2 ranks: all wait for ever
def sends_first(rank, p):
    return True


# refused: 4 ranks: a step takes 4 rounds
def sends_first(rank, p):
    return rank != 0


# refused: not True or False for each
def sends_first(rank, p):
    return rank % 2
