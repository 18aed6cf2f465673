# refused: the last one ends at 13.2 ms
def cut_buckets():
    return [1] * 10


# refused: the last one ends at 11.7 ms
def cut_buckets():
    return [2, 2, 2, 2, 2]


# refused: the largest has 12 MB
def cut_buckets():
    return [1, 1, 3, 3, 2]


# refused: the buckets hold 9 gradients
def cut_buckets():
    return [1, 1, 2, 2, 3]


# refused: not a list of whole numbers
def cut_buckets():
    return [8, 12, 8, 6, 1, 1.0]


# refused: it returned [[3], [2], [1], [0]]
def fill_buckets(sizes, limit):
    return [[place] for place in reversed(range(len(sizes)))]


# refused: it returned [[3, 2, 1, 0]]
def fill_buckets(sizes, limit):
    return [list(reversed(range(len(sizes))))]


# refused: it returned [[0, 1], [2, 3]]
def fill_buckets(sizes, limit):
    found, filled = [], limit
    for place, size in enumerate(sizes):
        if filled >= limit:
            found.append([])
            filled = 0
        found[-1].append(place)
        filled += size
    return found


# refused: it returned [[4], [3, 2], [1], [0]]
def fill_buckets(sizes, limit):
    found, left = [], 0
    for place in reversed(range(len(sizes))):
        if not found or sizes[place] > left:
            found.append([])
            left = limit
        found[-1].append(place)
        left -= sizes[place]
    return found
