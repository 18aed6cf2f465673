# refused: saving takes 60.0 s, 11135.0 s between failures
def best_interval(save_seconds, between_failures):
    return (save_seconds * between_failures) ** 0.5


# refused: saving takes 60.0 s, 11135.0 s between failures
def best_interval(save_seconds, between_failures):
    return between_failures / 2


# refused: step 2 on 2 ranks
def rows_of_rank(order, step, batch_size, rank, world_size):
    size = batch_size // world_size
    first = step * batch_size + rank * size
    return order[first : first + size]


# refused: of unequal sizes
def rows_of_rank(order, step, batch_size, rank, world_size):
    batch = order[step * batch_size : (step + 1) * batch_size]
    return batch if rank == 0 else []


# refused: 3 ranks, here: {0, 1}, stopped: {1}
def lost_ranks(world_size, here, stopped):
    return set(range(world_size)) - stopped


# refused: 3 ranks, here: {0, 1, 2}, stopped: {0, 2}
def lost_ranks(world_size, here, stopped):
    return set(range(world_size)) - here
