# refused: two choices, room for two: it returned
def kept_choices(choices, capacity):
    taken = {}
    kept = []
    for token, experts in enumerate(choices):
        for expert in experts:
            taken[expert] = taken.get(expert, 0) + 1
            if taken[expert] <= capacity:
                kept.append((token, expert))
    return kept


# refused: one choice, room for one: it returned
def kept_choices(choices, capacity):
    return [(i, e) for i, experts in enumerate(choices) for e in experts]


# refused: it returned
def kept_choices(choices, capacity):
    taken = {}
    kept = []
    for place in zip(*choices):
        for token, expert in enumerate(place):
            taken[expert] = taken.get(expert, 0) + 1
            if taken[expert] < capacity:
                kept.append((token, expert))
    return kept


# refused: it returned None, not a list of pairs
def kept_choices(choices, capacity):
    pass


# refused: counts [[3, 1], [4, 2]], rank 0: it returned
def gives_and_takes(counts, rank):
    k = len(counts)
    each = len(counts[0]) // k
    gives = [sum(counts[rank][o * each : (o + 1) * each]) for o in range(k)]
    return gives, gives


# refused: counts [[1, 2, 3, 4], [10, 20, 30, 40]], rank 0: it returned
def gives_and_takes(counts, rank):
    k = len(counts)
    gives = [sum(counts[rank][other::k]) for other in range(k)]
    takes = [sum(counts[other][rank::k]) for other in range(k)]
    return gives, takes


# refused: busiest: it returned
def place_experts(loads, k):
    return [(2 * i, 2 * i + 1) for i in range(k)]


# refused: busiest: it returned
def place_experts(loads, k):
    return [(i, i + k) for i in range(k)]


# refused: busiest: it returned
def place_experts(loads, k):
    order = sorted(range(2 * k), key=lambda e: loads[e])
    return [(order[2 * i], order[2 * i + 1]) for i in range(k)]


# refused: does not place each expert once
def place_experts(loads, k):
    order = sorted(range(2 * k), key=lambda e: loads[e])
    return [(order[i], order[-1]) for i in range(k)]


# refused: loads [5, 5]: it returned None, not a list of pairs
def place_experts(loads, k):
    pass


# refused: loads [8, 1, 4, 3]: it returned [0, 1], not a list of pairs
def place_experts(loads, k):
    return list(range(k)) if k > 1 else [(0, 1)]
