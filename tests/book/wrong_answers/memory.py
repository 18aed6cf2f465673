# refused: it returned [0, 1], which take 12 bytes
def what_to_keep(results, most_bytes):
    return list(range(len(results)))


# refused: not positions in increasing order
def what_to_keep(results, most_bytes):
    return {0}


# refused: it returned [0], and 14 s are computed again, where 10 s are
def what_to_keep(results, most_bytes):
    def seconds_a_byte(i):
        return results[i][1] / results[i][0]

    kept, left = [], most_bytes
    for i in sorted(range(len(results)), key=seconds_a_byte, reverse=True):
        if results[i][0] <= left:
            kept.append(i)
            left -= results[i][0]
    return sorted(kept)
