# refused: ZeRO-3 on 3 devices: a device sends 8.00 GB
def form_and_devices():
    return 3, 3


# refused: ZeRO-3 on 2 devices: a device keeps 8.00 GB
def form_and_devices():
    return 3, 2


# refused: ZeRO-1 on 16 devices: a device keeps 8.50 GB
def form_and_devices():
    return 1, 16


# refused: ZeRO-2 on 9 devices: a device sends 7.11 GB
def form_and_devices():
    return 2, 9


# refused: not a stage and a number of devices
def form_and_devices():
    return "ZeRO-2"


# refused: nothing waits for the gather of block 2
def read_backward():
    return 2, 5, 0


# refused: the most that are whole in one tick are not 4
def read_backward():
    return 1, 4, 0


# refused: the end does not come 1 sooner
def read_backward():
    return 1, 5, 1


# refused: not a block and two numbers
def read_backward():
    return 1


# one block ahead of the work: block 3 is late
# refused: it ends at 23 ms, where 21 are allowed
def gathering_order():
    order = [("gather", 0)]
    for b in range(6):
        if b + 1 < 6:
            order.append(("gather", b + 1))
        order += [("compute", b), ("free", b)]
    return order


# two blocks ahead of the work: too much is whole
# refused: at gather 4, 140 MB are whole
def gathering_order():
    order = [("gather", 0), ("gather", 1)]
    for b in range(6):
        if b + 2 < 6:
            order.append(("gather", b + 2))
        order += [("compute", b), ("free", b)]
    return order


# refused: at compute 0, block 0 is not whole
def gathering_order():
    return [(kind, b) for b in range(6) for kind in ("compute", "gather")]


# refused: the block is not computed yet
def gathering_order():
    kinds = "gather", "free", "compute"
    return [(kind, b) for b in range(6) for kind in kinds]


# refused: in the end block 0 is whole
def gathering_order():
    first = [(kind, b) for b in range(3) for kind in ("gather", "compute")]
    rest = [("gather", 3), ("compute", 3), ("free", 3)]
    rest = [("free", 1), ("free", 2), *rest]
    for b in (4, 5):
        rest += [("gather", b), ("compute", b), ("free", b)]
    return first + rest


# refused: file 0 has [0, 1, 2], not 0 to 3
def pieces_to_load(size, before, after):
    def borders(k):
        return [r * (size // k) + min(r, size % k) for r in range(k + 1)]

    ends = borders(after)
    if size == 12:
        ends_before = borders(before)
    else:  # cut as the new ranks cut
        ends_before = borders(after) + [size] * before
    found = []
    for rank in range(after):
        a, b = ends[rank], ends[rank + 1]
        pieces = []
        for file in range(before):
            first = max(a, ends_before[file])
            stop = min(b, ends_before[file + 1])
            if first < stop:
                pieces.append((file, first, stop))
        found.append(pieces)
    return found


# refused: rank 0 loads [0, 1, 2], its shard is [0, 1, 2, 3]
def pieces_to_load(size, before, after):
    old, new = size // before, size // after
    found = []
    for rank in range(after):
        pieces = []
        for file in range(before):
            first = max(rank * new, file * old)
            stop = min((rank + 1) * new, (file + 1) * old)
            if first < stop:
                pieces.append((file, first, stop))
        found.append(pieces)
    return found


# refused: it returned None
def pieces_to_load(size, before, after):
    pass
