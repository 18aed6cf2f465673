# refused: one block: it returned 30.0, expected 18.8
def merged_blocks(blocks):
    return sum(sum(values) for _, values in blocks)


# refused: line 7: OverflowError
def merged_blocks(blocks):
    from math import exp

    weighted = total = 0.0
    for scores, values in blocks:
        for score, value in zip(scores, values):
            weighted += exp(score) * value
            total += exp(score)
    return weighted / total


# refused: three blocks: it returned
def merged_blocks(blocks):
    from math import exp

    weighted = total = 0.0
    for scores, values in blocks:
        largest = max(scores)
        for score, value in zip(scores, values):
            weighted += exp(score - largest) * value
            total += exp(score - largest)
    return weighted / total


# refused: line 12: ZeroDivisionError
def merged_blocks(blocks):
    from math import exp

    weighted = total = largest = 0.0
    for scores, values in blocks:
        before, largest = largest, max(largest, *scores)
        weighted *= exp(before - largest)
        total *= exp(before - largest)
        for score, value in zip(scores, values):
            weighted += exp(score - largest) * value
            total += exp(score - largest)
    return weighted / total


# refused: rank 0 of 1, step 0: it returned [], expected [(0, 0, True)
def ring_meetings(rank, step, k):
    return []


# refused: rank 0 of 1, step 0: it returned [(0, 0, False)
def ring_meetings(rank, step, k):
    source = (rank - step) % k
    return [
        (query, key, False)
        for query in (rank, 2 * k - 1 - rank)
        for key in (source, 2 * k - 1 - source)
        if key <= query
    ]


# refused: rank 0 of 3, step 1: it returned
def ring_meetings(rank, step, k):
    source = (rank + step) % k
    return [
        (query, key, query == key)
        for query in (rank, 2 * k - 1 - rank)
        for key in (source, 2 * k - 1 - source)
        if key <= query
    ]


# refused: 2 devices, 32 heads, 500 tokens each, Rβ = 700: it returned
def ring_or_ulysses(k, heads, tokens, flops_per_byte):
    return "ulysses" if heads % k == 0 else "ring"


# refused: it returned 'ring', expected ulysses
def ring_or_ulysses(k, heads, tokens, flops_per_byte):
    return "ring"


# refused: it returned 'ulysses', expected ring
def ring_or_ulysses(k, heads, tokens, flops_per_byte):
    hidden = tokens > 2 * flops_per_byte
    return "ulysses" if heads % k == 0 and not hidden else "ring"


# refused: 8 devices, 12 heads
def ring_or_ulysses(k, heads, tokens, flops_per_byte):
    few = tokens < 2 * flops_per_byte * (1 - 2 / k)
    return "ulysses" if few else "ring"


# refused: ZeroDivisionError
def merged_blocks(blocks):
    from math import exp

    blocks = list(blocks)  # they are gone when the next one has arrived
    scores = [score for block, _ in blocks for score in block]
    values = [value for _, block in blocks for value in block]
    largest = max(scores, default=0.0)
    weights = [exp(score - largest) for score in scores]
    return sum(w * v for w, v in zip(weights, values)) / sum(weights)
