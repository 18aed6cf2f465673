"""The clock of hosts and streams, against what can be worked by hand."""

from dataclasses import replace
from threading import Thread

import pytest

from dpkit.sim.clock.clock import Clock
from dpkit.sim.clock.record import SECOND
from dpkit.sim.hardware import Host, Link
from dpkit.sim.hardware.clusters import cluster

TOY_HOST = Host(
    name="toy",
    launch_seconds=1.0,
    backward_launch_seconds=0.5,
    view_seconds=0.25,
    wait_seconds=0.0,
    to_device_bytes_per_second=1.0,
    from_device_bytes_per_second=1.0,
    new_memory_bytes_per_second=1.0,
)
NVLINK = Link(
    "toy",
    bytes_per_second=1.0,
    achieved=1.0,
    latency_seconds=0.0,
    peer_to_peer=True,
)
PCIE = Link(
    "toy-pcie",
    bytes_per_second=1.0,
    achieved=1.0,
    latency_seconds=0.0,
    peer_to_peer=False,
)


def clock(count=4, link=NVLINK, **options):
    """Return a clock of hosts that launch in a second."""
    toy = cluster(count, "v100-pcie", link, host=TOY_HOST, **options)
    made = Clock(toy)
    made.spans = made.record()
    return made


def recorded(made):
    """Return the spans of all that was issued."""
    made.stop_recording()
    return made.spans


def times(made, device):
    """Return (name, start, end) of what a device did."""
    spans = recorded(made)
    return [(s.name, s.start, s.end) for s in spans if s.device == device]


def test_a_launch_returns_before_the_work_is_done():
    made = clock()
    made.compute(0, "mm", seconds=10.0)
    made.compute(0, "mm", seconds=10.0)
    assert made.now() == 2.0
    made.wait(0)
    assert made.now() == 21.0
    assert times(made, "sim:0") == [("mm", 1.0, 11.0), ("mm", 11.0, 21.0)]


def test_polls_one_after_another_are_one_span():
    """Those of another device, or after a gap, are not."""
    made = clock(hosts="per_device")
    for device in (0, 0, 0, 1, 1):
        made.poll(device)
    made.hosts.python.reach(1, SECOND)
    made.poll(1)
    assert [made.now(device) for device in (0, 1)] == [3e-6, 1 + 1e-6]
    found = [(s.name, s.start, s.end) for s in recorded(made)]
    assert found == [
        ("query sim:0", 0.0, 3e-6),
        ("query sim:1", 0.0, 2e-6),
        ("query sim:1", 1.0, 1 + 1e-6),
    ]


def test_a_long_wait_takes_a_few_polls_more_than_a_short_one():
    """Each is late by a thousandth of the wait, which a gap ends."""
    made = clock()
    for _ in range(10_000):
        made.poll(0)
    assert made.now() == pytest.approx(8.07, rel=0.01)
    before = made.now()
    made.poll(0)
    assert made.now() - before == pytest.approx(before / 1000)
    made.compute(0, "mm", seconds=1.0)
    before = made.now()
    made.poll(0)
    assert made.now() - before == pytest.approx(1e-6)


def test_small_work_waits_for_its_launch():
    made = clock()
    for _ in range(3):
        made.compute(0, "add", seconds=0.25)
    made.wait(0)
    assert made.now() == 3.25


def test_an_operation_of_two_kernels_is_launched_twice():
    made = clock()
    made.compute(0, "convolution_backward", seconds=10.0, launches=2)
    assert made.now() == 2.0


def test_one_host_drives_all_devices():
    made = clock(count=2)
    for device in (0, 1):
        made.compute(device, "mm", seconds=10.0)
    made.wait(0)
    made.wait(1)
    assert made.now() == 12.0


def test_each_device_may_have_its_host():
    made = clock(count=2, hosts="per_device")
    for device in (0, 1):
        made.compute(device, "mm", seconds=10.0)
        made.wait(device)
    assert made.now(0) == made.now(1) == made.now() == 11.0


def test_hosts_catch_up_with_the_latest():
    made = clock(count=3, hosts="per_device")
    made.hosts.busy(1, "python", 5.0)
    made.hosts.catch_up([0, 1])
    assert [made.now(d) for d in range(3)] == [5.0, 5.0, 0.0]


def test_waiting_for_one_device_does_not_wait_for_the_others():
    made = clock(count=2)
    made.compute(1, "mm", seconds=10.0)
    made.wait(0)
    assert made.now() == 1.0


def test_a_slow_device_takes_longer():
    made = clock(count=2, slow={1: 1.5})
    for device in (0, 1):
        made.compute(device, "mm", seconds=10.0)
    assert times(made, "sim:0") == [("mm", 1.0, 11.0)]
    assert times(made, "sim:1") == [("mm", 2.0, 17.0)]


def test_two_streams_share_the_compute():
    """Side by side takes as long as one after the other."""
    one_stream, two_streams = clock(), clock()
    for stream in (0, 1):
        one_stream.compute(0, "mm", seconds=10.0)
        two_streams.current[0] = stream
        two_streams.compute(0, "mm", seconds=10.0)
    for made in (one_stream, two_streams):
        made.wait(0)
    assert one_stream.now() == two_streams.now() == 21.0


def test_a_stream_fills_what_another_leaves_free():
    made = clock(count=2)
    made.compute(1, "before", seconds=7.0)
    event = made.mark_stream(1, 0)
    made.mark_stream(0, 1, event)  # stream 1 waits for device 1
    made.current[0] = 1
    made.compute(0, "later", seconds=2.0)
    made.current[0] = 0
    made.compute(0, "sooner", seconds=3.0)
    assert times(made, "sim:0") == [("sooner", 3.0, 6.0), ("later", 8.0, 10.0)]


def test_a_small_operation_on_another_stream_does_not_wait_for_all():
    """It waits for the one that runs, not for all that Python has issued."""
    made = clock()
    for _ in range(3):
        made.compute(0, "mm", seconds=10.0)
    made.current[0] = 1
    made.compute(0, "add", seconds=1.0)
    assert times(made, "sim:0") == [
        ("mm", 1.0, 11.0),
        ("add", 11.0, 12.0),
        ("mm", 12.0, 22.0),
        ("mm", 22.0, 32.0),
    ]


def test_the_order_is_that_of_time_whatever_is_asked_first():
    """Asking when one is done does not put it before the others."""
    made = clock()
    for _ in range(3):
        made.compute(0, "mm", seconds=10.0)
    last = made.mark_stream(0, 0)
    made.current[0] = 1
    made.compute(0, "add", seconds=1.0)
    assert made.end_of(last) == 32 * SECOND


def test_asking_whether_it_is_done_changes_nothing():
    made = clock()
    made.compute(0, "mm", seconds=10.0)
    made.compute(0, "mm", seconds=10.0)
    assert not made.is_done(made.mark_stream(0, 0), 0)
    made.current[0] = 1
    made.compute(0, "add", seconds=1.0)
    made.wait(0, stream=1)
    assert made.now() == 12.0
    made.current[0] = 0
    assert not made.is_done(made.mark_stream(0, 0), 0)
    made.wait(0)
    assert made.is_done(made.mark_stream(0, 0), 0)


def test_threads_of_python_have_streams_and_issuers_of_their_own():
    """As on CUDA: a backward or a stream of one is not another's."""
    made, found = clock(), []

    def other():
        found.append((made.current[0], made.hosts.in_backward))
        made.compute(0, "add", seconds=1.0)

    made.current[0] = 1
    made.begin_backward()
    thread = Thread(target=other)
    thread.start()
    thread.join()
    made.end_backward()
    assert found == [(0, False)]
    assert [s.stream for s in recorded(made) if s.kind == "compute"] == [
        "compute"
    ]


def test_a_copy_is_a_barrier_on_both_ends():
    made = clock(count=2)
    made.compute(0, "mm", seconds=10.0)
    made.copy(0, 1, seconds=5.0, num_bytes=100)
    made.compute(1, "add", seconds=1.0)
    assert times(made, "sim:0")[1] == ("copy to sim:1", 11.0, 16.0)
    assert times(made, "sim:1") == [
        ("copy from sim:0", 11.0, 16.0),
        ("add", 16.0, 17.0),
    ]


def test_the_port_of_a_star_s_root_is_the_bottleneck():
    made = clock(count=4)
    for device in (1, 2, 3):
        made.copy(device, 0, seconds=10.0, num_bytes=100)
    made.wait(0)
    assert made.now() == 1.0 + 3 * 10.0


def test_ports_are_full_duplex():
    """On streams of their own, there and back at once."""
    made = clock(count=2)
    made.copy(0, 1, seconds=10.0, num_bytes=100)
    made.current[:] = [1, 1]
    made.copy(1, 0, seconds=10.0, num_bytes=100)
    for device in (0, 1):
        made.wait(device)
    assert made.now() == 12.0


@pytest.mark.parametrize(("link", "seconds"), [(NVLINK, 12.0), (PCIE, 21.0)])
def test_pairs_share_the_path_through_the_host(link, seconds):
    made = clock(link=link)
    made.copy(0, 1, seconds=10.0, num_bytes=100)
    made.copy(2, 3, seconds=10.0, num_bytes=100)
    for device in range(4):
        made.wait(device)
    assert made.now() == seconds


def test_the_host_waits_for_a_blocking_copy():
    made = clock()
    made.compute(0, "mm", seconds=10.0)
    made.copy(0, None, seconds=5.0, num_bytes=100, blocking=True)
    assert made.now() == 16.0


def test_backward_runs_a_thread_for_each_device():
    """Device 1's work comes first in the program, yet both run at once."""
    made = clock(count=2)
    made.begin_backward()
    for device in (1, 1, 0, 0):
        made.compute(device, "mm", seconds=10.0)
    made.end_backward()
    assert made.now() == 1.0  # two launches of half a second, on each
    for device in ("sim:0", "sim:1"):
        assert times(made, device) == [("mm", 0.5, 10.5), ("mm", 10.5, 20.5)]


def test_backward_places_work_in_the_order_of_issue():
    """A copy from device 1, issued late, does not hold up device 0."""
    made = clock(count=2)
    made.begin_backward()
    for _ in range(4):
        made.compute(1, "mm", seconds=10.0)
    issued = made.copy(1, 0, seconds=5.0, num_bytes=100)
    made.compute(0, "mm", seconds=10.0)
    made.hosts.await_thread(0, issued)
    made.compute(0, "add", seconds=1.0)
    made.end_backward()
    assert times(made, "sim:0") == [
        ("mm", 0.5, 10.5),
        ("copy from sim:1", 40.5, 45.5),
        ("add", 45.5, 46.5),
    ]
    assert made.now() == 3.0


def test_backward_inside_backward():
    made = clock(count=2)
    made.begin_backward()
    made.begin_backward()
    made.compute(0, "mm", seconds=10.0)
    made.end_backward()
    assert made.hosts.in_backward
    made.end_backward()
    assert not made.hosts.in_backward
    assert made.now() == 0.5


def test_a_cpu_works_by_itself():
    """Where the device is the host, issuing includes the work."""
    toy = clock().cluster
    accelerator = replace(toy.accelerator, synchronous=True)
    made = Clock(replace(toy, accelerator=accelerator))
    made.compute(0, "mm", seconds=10.0)
    assert made.now() == 11.0


def test_the_host_row_has_no_gap():
    """What the host does and waits for adds up to its time."""
    made = clock()
    made.compute(0, "mm", seconds=10.0)
    made.hosts.busy(0, "view", 0.25)
    made.copy(0, None, seconds=5.0, num_bytes=100, blocking=True)
    host = [s for s in made.spans if s.device == "host"]
    assert sum(s.end - s.start for s in host) == made.now()


def test_the_host_goes_on_when_the_last_thread_is_done():
    made = clock(count=3)
    made.begin_backward()
    for device, count in enumerate((1, 4, 2)):
        for _ in range(count):
            made.compute(device, "mm", seconds=10.0)
    made.end_backward()
    assert made.now() == 4 * 0.5


def test_both_hosts_pay_for_a_copy_between_their_devices():
    made = clock(count=2, hosts="per_device")
    made.hosts.busy(1, "python", 5.0)
    made.copy(0, 1, seconds=10.0, num_bytes=100)
    assert (made.now(0), made.now(1)) == (1.0, 6.0)
    assert times(made, "sim:0") == [("copy to sim:1", 6.0, 16.0)]


def test_a_blocking_copy_waits_for_its_own_stream():
    made = clock()
    made.compute(0, "mm", seconds=50.0)
    made.current[0] = 1
    made.copy(None, 0, seconds=5.0, num_bytes=100, blocking=True)
    assert made.now() == 2.0 + 5.0


def test_waiting_for_a_stream_leaves_the_others_at_work():
    made = clock()
    made.copy(None, 0, seconds=5.0, num_bytes=100)
    made.current[0] = 1
    made.compute(0, "mm", seconds=50.0)
    made.wait(0, stream=0)
    assert made.now() == 6.0
    made.wait(0)
    assert made.now() == 52.0


def test_a_slow_device_copies_at_the_usual_pace():
    made = clock(count=2, slow={1: 2.0})
    made.copy(0, 1, seconds=10.0, num_bytes=100)
    assert times(made, "sim:1") == [("copy from sim:0", 1.0, 11.0)]


def test_waiting_costs_the_host_something():
    toy = clock().cluster
    host = replace(toy.host, wait_seconds=0.25)
    made = Clock(replace(toy, host=host))
    made.wait(0)
    assert made.now() == 0.25


@pytest.mark.parametrize("to_the_host", [True, False])
def test_copies_of_two_devices_share_the_path_to_the_host(to_the_host):
    made = clock()
    for device in (0, 1):
        ends = (device, None) if to_the_host else (None, device)
        made.copy(*ends, seconds=10.0, num_bytes=100)
    for device in (0, 1):
        made.wait(device)
    assert made.now() == 1.0 + 2 * 10.0


def ends(made):
    """Return when each copy that was recorded ended, by its ends."""
    found = {
        (s.device, s.name.removeprefix("copy to ")): s.end
        for s in recorded(made)
        if s.name.startswith("copy to")
    }
    return dict(sorted(found.items()))


def test_each_device_has_a_port_to_other_nodes():
    """Copies across neither wait for each other nor for those inside."""
    free = replace(TOY_HOST, launch_seconds=0.0)
    made = Clock(cluster(4, host=free, ranks_per_node=2))
    made.spans = made.record()
    made.copy(0, 2, seconds=1.0, num_bytes=1)
    made.copy(1, 3, seconds=1.0, num_bytes=1)
    made.current[:] = [made.new_stream(d) for d in range(4)]
    made.copy(0, 1, seconds=1.0, num_bytes=1)
    made.copy(
        0, 3, seconds=1.0, num_bytes=1
    )  # the ports of 0 and 3 across are taken
    assert ends(made) == {
        ("sim:0", "sim:2"): 1.0,
        ("sim:1", "sim:3"): 1.0,
        ("sim:0", "sim:1"): 1.0,
        ("sim:0", "sim:3"): 2.0,
    }


def test_each_node_has_a_path_through_its_host():
    free = replace(TOY_HOST, launch_seconds=0.0)
    for nodes, last in ((None, 2.0), (2, 1.0)):
        made = Clock(cluster(4, link=PCIE, host=free, ranks_per_node=nodes))
        made.spans = made.record()
        made.copy(0, 1, seconds=1.0, num_bytes=1)
        made.copy(2, 3, seconds=1.0, num_bytes=1)
        assert ends(made)["sim:2", "sim:3"] == last


@pytest.mark.parametrize(
    ("share", "expected"),
    [(0.25, [1.0] * 4), (0.5, [1.0, 1.0, 2.0, 2.0]), (1.0, [1, 2, 3, 4])],
)
def test_slow_copies_to_the_host_share_its_path(share, expected):
    free = replace(TOY_HOST, launch_seconds=0.0)
    made = Clock(cluster(4, host=free, hosts="per_device"))
    made.spans = made.record()
    for device in range(4):
        made.copy(device, None, seconds=1.0, num_bytes=1, share=share)
    assert list(ends(made).values()) == expected


def test_each_switch_has_a_path_to_the_host():
    """8 devices, nodes of 4, pairs: 1 shares the path of 0, 2 and 4 do not."""
    free = replace(TOY_HOST, launch_seconds=0.0)
    for size, expected in ((None, [1, 2, 3, 1]), (2, [1, 2, 1, 1])):
        made = Clock(
            cluster(8, host=free, ranks_per_node=4, devices_per_switch=size)
        )
        made.spans = made.record()
        for device in (0, 1, 2, 4):
            made.copy(device, None, seconds=1.0, num_bytes=1)
        assert list(ends(made).values()) == expected


def test_copies_inside_two_switches_pass_at_once():
    free = replace(TOY_HOST, launch_seconds=0.0)
    made = Clock(cluster(4, link=PCIE, host=free, devices_per_switch=2))
    made.spans = made.record()
    for source, target in ((0, 1), (2, 3), (1, 2)):
        made.copy(source, target, seconds=1.0, num_bytes=1)
    assert list(ends(made).values()) == [1.0, 2.0, 1.0]


def test_a_link_and_a_network_that_are_alike_are_two():
    free = replace(TOY_HOST, launch_seconds=0.0)
    made = Clock(
        cluster(4, link=NVLINK, network=NVLINK, host=free, ranks_per_node=2)
    )
    made.spans = made.record()
    made.copy(0, 1, seconds=1.0, num_bytes=1)
    made.current[:] = [made.new_stream(d) for d in range(4)]
    made.copy(0, 2, seconds=1.0, num_bytes=1)
    assert ends(made) == {("sim:0", "sim:1"): 1.0, ("sim:0", "sim:2"): 1.0}


def test_communication_threads_issue_no_earlier_than_asked():
    made = Clock(cluster(2, host=TOY_HOST, hosts="per_device"))
    made.spans = made.record()
    with made.communication_threads({1: 5 * SECOND}):
        made.compute(1, "add", seconds=1.0)
        made.compute(1, "add", seconds=1.0)
    assert made.mark(1) == 0  # the host itself has gone on
    with made.communication_threads({1: 0}):
        made.compute(1, "add", seconds=1.0)
    assert times(made, "host:1")[-1] == ("add", 6.0, 6.5)
    starts = [start for _, start, _ in times(made, "sim:1")]
    assert starts == [5.5, 6.5, 7.5]


def test_a_collective_in_backward_comes_before_what_needs_it():
    """Though the thread of one device is far behind the other."""
    made = clock(count=2)
    made.begin_backward()
    for _ in range(4):
        made.compute(1, "mm", seconds=1.0)
    made.collective([0, 1], name="allreduce", seconds=1.0, num_bytes=100)
    made.compute(0, "add", seconds=1.0)
    made.end_backward()
    names = [name for name, _, _ in times(made, "sim:0")]
    assert names == ["allreduce", "add"]


@pytest.mark.parametrize("last", [0, 1, 2])
def test_the_host_goes_on_when_the_slowest_thread_of_backward_is_done(last):
    """Whichever device it is for; a launch takes half a second there."""
    made = clock(count=3)
    made.begin_backward()
    for device in range(3):
        for _ in range(9 if device == last else 2):
            made.compute(device, "mm", seconds=1.0)
    made.end_backward()
    assert made.now() == 4.5


def test_a_collective_between_nodes_leaves_the_links_inside_free():
    free = replace(TOY_HOST, launch_seconds=0.0)
    made = Clock(cluster(8, host=free, ranks_per_node=4))
    made.spans = made.record()
    made.collective(
        [0, 1, 4, 5], name="allreduce", seconds=10.0, num_bytes=100
    )
    made.current[:] = [made.new_stream(d) for d in range(8)]
    made.copy(2, 3, seconds=1.0, num_bytes=1)
    made.copy(
        4, 3, seconds=1.0, num_bytes=1
    )  # the ring of 0 and 4 leaves from 4
    assert ends(made) == {("sim:2", "sim:3"): 1.0, ("sim:4", "sim:3"): 11.0}


def test_a_collective_of_one_device_a_node_uses_no_link_inside():
    free = replace(TOY_HOST, launch_seconds=0.0)
    made = Clock(cluster(8, host=free, ranks_per_node=4))
    made.spans = made.record()
    made.collective([0, 4], name="allreduce", seconds=10.0, num_bytes=100)
    made.current[:] = [made.new_stream(d) for d in range(8)]
    made.copy(0, 1, seconds=1.0, num_bytes=1)
    assert ends(made) == {("sim:0", "sim:1"): 1.0}
