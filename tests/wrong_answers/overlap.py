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
def fill_buckets(sizes, room):
    return [[place] for place in reversed(range(len(sizes)))]


# refused: it returned [[3, 2, 1, 0]]
def fill_buckets(sizes, room):
    return [list(reversed(range(len(sizes))))]


# refused: it returned [[0, 1], [2, 3]]
def fill_buckets(sizes, room):
    found, left = [], 0
    for place, size in enumerate(sizes):
        if not found or size > left:
            found.append([])
            left = room
        found[-1].append(place)
        left -= size
    return found
