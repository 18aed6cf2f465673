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


# refused: block 0 has been issued already
def prefetch_order(count):
    order = [("gather", 0)]
    for b in range(count):
        order.append(("compute", b))
        if b + 1 < count:
            order.append(("gather", b + 1))
        order.append(("free", b))
    return order


# refused: in the end block 0 is whole
def prefetch_order(count):
    order = [("gather", 0)]
    for b in range(count):
        if b + 1 < count:
            order.append(("gather", b + 1))
        order.append(("compute", b))
    return order


# refused: 3 blocks are whole
def prefetch_order(count):
    kinds = ("gather", "compute", "free")
    return [(kind, b) for kind in kinds for b in range(count)]


# refused: block 0 is not whole
def prefetch_order(count):
    return [(kind, b) for b in range(count) for kind in ("compute", "free")]


# refused: the block is not computed yet
def prefetch_order(count):
    order = []
    for b in range(count):
        order += [("gather", b), ("free", b), ("gather", b), ("compute", b)]
    return order
