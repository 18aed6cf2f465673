# refused: device 0 does not keep 5
def read_chart():
    return 5, 1 / 3, "1B2"


# refused: not idle for 0.5 of the total time
def read_chart():
    return 3, 1 / 2, "1B2"


# refused: '2F4' began as soon as it could
def read_chart():
    return 3, 1 / 3, "2F4"


# refused: '0B2' began as soon as it could
def read_chart():
    return 3, 1 / 3, "0B2"


# refused: keeps 2 micro-batches, more than 1
def one_forward_one_backward(num_stages, num_micro_batches):
    return [
        [f"{r}{kind}{m}" for kind in "FB" for m in range(num_micro_batches)]
        for r in range(num_stages)
    ]


# refused: ticks, where
def one_forward_one_backward(num_stages, num_micro_batches):
    return [
        [f"{r}{kind}{m}" for m in range(num_micro_batches) for kind in "FB"]
        for r in range(num_stages)
    ]


# refused: neither goes on
def one_forward_one_backward(num_stages, num_micro_batches):
    schedule = []
    for r in range(num_stages):
        forward = [f"{r}F{m}" for m in range(num_micro_batches)]
        backward = [f"{r}B{m}" for m in range(num_micro_batches)]
        ahead = min(r, num_micro_batches)
        actions = forward[:ahead]
        for pair in zip(forward[ahead:], backward):
            actions += pair
        schedule.append(actions + backward[num_micro_batches - ahead :])
    return schedule


# refused: it returned 0, not a whole number of at least 1
def best_count(num_stages, work_seconds, cost_seconds):
    return int(((num_stages - 1) * work_seconds / cost_seconds) ** 0.5)


# refused: are better than 32
def best_count(num_stages, work_seconds, cost_seconds):
    return max(round((work_seconds / cost_seconds) ** 0.5), 1)


# refused: 1 stage, work 1.0 s, cost 0.001 s: it returned 0.0, not a whole
def best_count(num_stages, work_seconds, cost_seconds):
    return ((num_stages - 1) * work_seconds / cost_seconds) ** 0.5


# refused: 2 micro-batches are better than 1
def best_count(num_stages, work_seconds, cost_seconds):
    root = ((num_stages - 1) * work_seconds / cost_seconds) ** 0.5
    return max(round(root), 1)
