"""Programs with a fault of order, each beside the right version of it."""

import torch
from cuda_double.findings import num_host_waits

ZERO, ONE = torch.device("cuda:0"), torch.device("cuda:1")


def read_on_another_stream(waits: bool) -> float:
    side = torch.cuda.Stream()
    x = torch.zeros(1000, device=ZERO)
    x += 1  # the write
    if waits:
        side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        y = x * 2  # the read
    torch.cuda.synchronize()
    return y.sum().item()


def case_a_wait_is_missing() -> float:
    return read_on_another_stream(waits=False)


def case_a_wait_is_there() -> float:
    return read_on_another_stream(waits=True)


def case_an_event_is_waited_for() -> float:
    side, event = torch.cuda.Stream(), torch.cuda.Event()
    x = torch.ones(10, device=ZERO)
    event.record()
    side.wait_event(event)
    with torch.cuda.stream(side):
        y = x * 2
    torch.cuda.synchronize()
    return y.sum().item()


def case_an_event_is_recorded_too_early() -> float:
    side, event = torch.cuda.Stream(), torch.cuda.Event()
    x = torch.zeros(10, device=ZERO)
    event.record()
    x += 1
    side.wait_event(event)
    with torch.cuda.stream(side):
        y = x * 2
    torch.cuda.synchronize()
    return y.sum().item()


def copy_beside_the_work(waits: bool) -> float:
    copying = torch.cuda.Stream()
    batch = torch.ones(1000).pin_memory()
    with torch.cuda.stream(copying):
        x = batch.to(ZERO, non_blocking=True)
    if waits:
        torch.cuda.current_stream().wait_stream(copying)
        x.record_stream(torch.cuda.current_stream())
    return (x * 2).sum().item()


def case_a_copy_on_a_stream_that_nobody_waits_for() -> float:
    return copy_beside_the_work(waits=False)


def case_a_copy_on_a_stream_that_is_waited_for() -> float:
    return copy_beside_the_work(waits=True)


def sent_to_a_peer(waits: bool) -> float:
    arriving = torch.cuda.Stream(ONE)
    y = torch.ones(1000, device=ZERO).to(ONE, non_blocking=True)
    if waits:
        arriving.wait_stream(torch.cuda.current_stream(ONE))
    with torch.cuda.stream(arriving):
        z = y + 1
    torch.cuda.synchronize(ONE)
    return z.sum().item()


def case_what_a_peer_sends_is_used_on_the_wrong_stream() -> float:
    return sent_to_a_peer(waits=False)


def case_what_a_peer_sends_is_waited_for() -> float:
    return sent_to_a_peer(waits=True)


def case_what_a_peer_sends_is_used_on_the_current_stream() -> float:
    return (torch.ones(1000, device=ZERO).to(ONE) + 1).sum().item()


def given_back(is_recorded: bool) -> None:
    side = torch.cuda.Stream()
    x = torch.ones(1000, device=ZERO)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        x.mul_(2)
    if is_recorded:
        x.record_stream(side)
    del x


def case_record_stream_is_forgotten() -> None:
    given_back(is_recorded=False)


def case_record_stream_is_there() -> None:
    given_back(is_recorded=True)


def case_record_stream_is_forgotten_beside_a_right_one() -> None:
    side = torch.cuda.Stream()
    right, forgotten = (torch.ones(1000, device=ZERO) for _ in range(2))
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        right.mul_(2)
        forgotten.add_(2)
    right.record_stream(side)
    del right
    torch.ones(1000, device=ZERO)  # the allocator asks whether side is done
    del forgotten


def case_the_host_waits_before_it_gives_back() -> None:
    side = torch.cuda.Stream()
    x = torch.ones(1000, device=ZERO)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        x.mul_(2)
    side.synchronize()
    del x


def given_back_before_the_wait(waits: bool) -> None:
    side = torch.cuda.Stream()
    x = torch.ones(1000, device=ZERO)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        x.mul_(2)
    del x
    if waits:
        torch.cuda.current_stream().wait_stream(side)
    torch.ones(1000, device=ZERO)  # it gets this memory
    torch.cuda.synchronize()


def case_the_next_owner_of_memory_does_not_wait() -> None:
    given_back_before_the_wait(waits=False)


def case_the_next_owner_of_memory_waits() -> None:
    given_back_before_the_wait(waits=True)


def case_two_halves_of_one_tensor() -> float:
    side = torch.cuda.Stream()
    x = torch.zeros(1000, device=ZERO)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        x[:500] += 1
    x[500:] += 1
    torch.cuda.synchronize()
    return x.sum().item()


def two_columns(second: int) -> float:
    side = torch.cuda.Stream()
    x = torch.zeros(100, 2, device=ZERO)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        x[:, 0] += 1
    x[:, second] += 1
    torch.cuda.synchronize()
    return x.sum().item()


def case_two_columns_of_one_tensor() -> float:
    return two_columns(second=1)


def case_one_column_twice() -> float:
    return two_columns(second=0)


def case_a_backward_on_a_side_stream() -> float:
    side = torch.cuda.Stream()
    w = torch.ones(10, device=ZERO, requires_grad=True)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        loss = (w * 2).sum()
        loss.backward()
    torch.cuda.current_stream().wait_stream(side)
    return w.grad.sum().item()


def waits_for_a_copy(batch: torch.Tensor) -> int:
    torch.ones(10, device=ZERO)
    before = num_host_waits()
    batch.to(ZERO, non_blocking=True)
    return num_host_waits() - before


def case_the_host_waits_for_pageable_memory() -> int:
    return waits_for_a_copy(torch.ones(10))


def case_the_host_does_not_wait_for_pinned_memory() -> int:
    return waits_for_a_copy(torch.ones(10).pin_memory())


def case_the_host_waits_for_an_item() -> int:
    x = torch.ones(10, device=ZERO)
    before = num_host_waits()
    x.sum().item()
    return num_host_waits() - before


def case_the_host_waits_for_a_shape() -> int:
    x = torch.ones(10, device=ZERO)
    before = num_host_waits()
    x[x > 0]
    return num_host_waits() - before


def brought_back(waits: bool) -> float:
    x = torch.ones(1000, device=ZERO)
    on_host = torch.empty(1000).pin_memory()
    on_host.copy_(x, non_blocking=True)  # the copy to the host
    if waits:
        torch.cuda.current_stream().synchronize()
    return on_host.sum().item()  # the host reads


def case_the_host_reads_too_early() -> float:
    return brought_back(waits=False)


def case_the_host_reads_in_time() -> float:
    return brought_back(waits=True)


def written_again(waits: bool) -> float:
    batch = torch.ones(1000).pin_memory()
    x = batch.to(ZERO, non_blocking=True)
    total = batch.sum().item()  # to read it is no fault
    if waits:
        torch.cuda.synchronize(ZERO)
    batch.zero_()  # the host writes
    return total + x.sum().item()


def case_the_host_writes_too_early() -> float:
    return written_again(waits=False)


def case_the_host_writes_in_time() -> float:
    return written_again(waits=True)


def case_numpy_reads_too_early() -> float:
    x = torch.ones(1000, device=ZERO)
    on_host = torch.empty(1000).pin_memory()
    on_host.copy_(x, non_blocking=True)
    return float(on_host.numpy().sum())


def case_one_batch_for_two_devices() -> float:
    batch = torch.ones(1000).pin_memory()
    x, y = (batch.to(d, non_blocking=True) for d in (ZERO, ONE))
    return x.sum().item() + y.sum().item()
