# refused: step 1, rate 0.1, k = 4
def rate_of_step(step, lr, k, warmup, slow):
    if step < warmup:
        return lr + (k - 1) * lr * (step // warmup)
    return k * lr if step < slow else k * lr / 10


# refused: step 16, rate 0.1, k = 4
def rate_of_step(step, lr, k, warmup, slow):
    if step < warmup:
        return lr + (k - 1) * lr * step / warmup
    return k * lr if step < warmup + slow else k * lr / 10


# refused: step 0, rate 0.1, k = 4
def rate_of_step(step, lr, k, warmup, slow):
    if step < warmup:
        return k * lr * step / warmup
    return k * lr if step < slow else k * lr / 10


# refused: expected (100.0, 64.0)
def critical_batch(B1, S1, B2, S2):
    slope = (S1 - S2) / (1 / B1 - 1 / B2)
    return slope / (S1 - slope / B1), S1 - slope / B1


# refused: it returned (125.0, 16)
def critical_batch(B1, S1, B2, S2):
    return S2, B1


# refused: expected 4
def fastest_count(seconds, b, least_steps, critical_batch):
    return max(seconds, key=lambda k: k / seconds[k])


# refused: expected 1
def fastest_count(seconds, b, least_steps, critical_batch):
    return max(seconds)


# refused: expected 4
def fastest_count(seconds, b, least_steps, critical_batch):
    def time(k):
        return seconds[k] * least_steps * (1 + critical_batch / k)

    return min(seconds, key=time)
