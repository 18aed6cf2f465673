# refused: 6 rows on 4 devices
def row_weights(num_rows, k):
    return [1 / num_rows] * num_rows


# refused: 6 rows on 4 devices
def row_weights(num_rows, k):
    sizes = [num_rows // k + (r < num_rows % k) for r in range(k)]
    return [1 / (rows * k) for rows in sizes for _ in range(rows)]


# refused: 6 rows on 4 devices
def row_weights(num_rows, k):
    size = -(-num_rows // k)
    sizes = [min(size, num_rows - begin) for begin in range(0, num_rows, size)]
    return [1 / (rows * len(sizes)) for rows in sizes for _ in range(rows)]


# refused: 6 rows on 4 devices
def idle_devices(num_rows, k):
    return max(0, k - num_rows)


# refused: 257 rows on 5 devices
def idle_devices(num_rows, k):
    return -num_rows % k
