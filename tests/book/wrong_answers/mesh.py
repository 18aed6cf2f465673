# refused: rank 0 of a mesh (2, 2), dimension 0: it returned [0, 1]
def ranks_of_group(rank, sizes, dimension):
    n = sizes[dimension]
    first = rank // n * n
    return list(range(first, first + n))


# refused: rank 1 of a mesh (2,), dimension 0: it returned [1, 2]
def ranks_of_group(rank, sizes, dimension):
    from math import prod

    stride = prod(sizes[dimension + 1 :])
    return [rank + i * stride for i in range(sizes[dimension])]


# refused: rank 0 of a mesh (2, 2), dimension 0: it returned [0, 1]
def ranks_of_group(rank, sizes, dimension):
    from math import prod

    stride = prod(sizes[:dimension])
    place = rank // stride % sizes[dimension]
    first = rank - place * stride
    return [first + i * stride for i in range(sizes[dimension])]


# refused: a mesh (2, 2), 2 ranks in a node: it returned []
def dimensions_across(sizes, on_node):
    return [i for i, n in enumerate(sizes) if n > on_node]


# refused: a mesh (2, 4), 2 ranks in a node: it returned [0]
def dimensions_across(sizes, on_node):
    from math import prod

    found = []
    for i, n in enumerate(sizes):
        stride = prod(sizes[i + 1 :])
        if n > 1 and stride >= on_node:
            found.append(i)
    return found


# refused: 4 blocks of 1.0 ms, a head of 2.0 ms, 2 stages, the slowest stage
def even_cut(num_blocks, block, head, p):
    return [num_blocks * (i + 1) // p - num_blocks * i // p for i in range(p)]


# refused: does not give each stage one block or more
def even_cut(num_blocks, block, head, p):
    least = (num_blocks * block + head) / p
    last = round((least - head) / block)
    cut = [(num_blocks - last) // (p - 1)] * (p - 1)
    cut[0] += num_blocks - last - sum(cut)
    return [*cut, last]


# refused: 12 blocks of 2.0 ms, a head of 9.0 ms, 3 stages, the slowest stage
def even_cut(num_blocks, block, head, p):
    cut = [num_blocks // p] * p
    cut[0] += num_blocks % p
    while block * cut[-1] + head > block * cut[0] + block and cut[-1] > 1:
        cut[-1] -= 1
        cut[0] += 1
    return cut
