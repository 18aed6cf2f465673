"""torch.sim mirrors what programs use of torch.cuda: streams, events, …"""

from dataclasses import FrozenInstanceError
from threading import Thread

import pytest
import torch

import dpkit

ZERO, ONE = dpkit.devices(2, "sim")
SIZE = 1500


@pytest.fixture
def x():
    return torch.ones(SIZE, SIZE, device=ZERO)


def product_seconds(x):
    with dpkit.Timer([ZERO]) as timer:
        x @ x
    return timer.seconds


def test_two_streams_of_a_device_take_turns(x):
    """Two products on two streams take as long as one after the other."""
    with dpkit.Timer([ZERO]) as one_stream:
        x @ x
        x @ x
    side = torch.sim.Stream(ZERO)
    with dpkit.Timer([ZERO]) as two_streams:
        x @ x
        with torch.sim.stream(side):
            x @ x
    assert two_streams.seconds == pytest.approx(one_stream.seconds)
    assert two_streams.seconds > 1.5 * product_seconds(x)


def test_a_copy_on_a_stream_of_its_own_overlaps(x):
    """It leaves by the port while the device computes."""

    def run(stream):
        with dpkit.sim.trace() as timeline:
            torch.sim.synchronize(ZERO)
            y = x @ x
            with torch.sim.stream(stream):
                x.to("cpu", non_blocking=True)
            del y
        spans = {s.name: s for s in timeline.spans if s.device == "sim:0"}
        return spans["mm"], spans["copy to host"]

    product, copy = run(torch.sim.current_stream(ZERO))
    assert copy.start >= product.end
    product, copy = run(torch.sim.Stream(ZERO))
    assert copy.start < product.end


def test_a_stream_waits_for_another(x):
    side = torch.sim.Stream(ZERO)
    with dpkit.sim.trace() as timeline:
        y = x @ x
        side.wait_stream(torch.sim.current_stream(ZERO))
        with torch.sim.stream(side):
            z = y.to("cpu", non_blocking=True)
    y.record_stream(side)
    spans = {s.name: s for s in timeline.spans if s.device == "sim:0"}
    assert spans["copy to host"].start >= spans["mm"].end
    assert spans["copy to host"].stream != "compute"
    del z


def test_events_time_what_lies_between_them(x):
    begin, end = (torch.sim.Event(enable_timing=True) for _ in range(2))
    torch.sim.synchronize(ZERO)
    begin.record()
    y = x @ x
    assert not torch.sim.current_stream(ZERO).query()
    end.record()
    assert not end.query()
    end.synchronize()
    assert end.query()
    assert torch.sim.current_stream(ZERO).query()
    expected = 1e3 * product_seconds(x)
    assert begin.elapsed_time(end) == pytest.approx(expected, rel=0.05)
    del y


MOST_POLLS = 100_000  # for what one poll in a hundred would do


def polls_until(is_done):
    """Return how often a loop asks; it is not to ask for ever."""
    for count in range(1, MOST_POLLS):
        if is_done():
            return count
    raise AssertionError(f"not done after {MOST_POLLS} polls")


@pytest.mark.parametrize("what", ["event", "stream"])
def test_a_loop_that_polls_ends_with_the_work(x, what):
    """To ask takes time; it is one span on the host, however often it asks."""
    torch.sim.synchronize(ZERO)
    with dpkit.sim.trace() as timeline:
        y = x @ x
        if what == "event":
            count = polls_until(current(ZERO).record_event().query)
        else:
            count = polls_until(current(ZERO).query)
        after = dpkit.sim.now()
        torch.sim.synchronize(ZERO)  # what is over costs the wait alone
        waited = dpkit.sim.now() - after
    product = next(s for s in timeline.spans if s.device == "sim:0")
    polls = [s for s in timeline.spans if s.name == "query sim:0"]
    assert count > 100
    assert sum(s.end - s.start for s in polls) == pytest.approx(1e-6 * count)
    assert product.end <= polls[-1].end <= product.end + 1.001e-6
    assert len(polls) <= 2  # the product's span may lie between
    assert waited == pytest.approx(5e-6)
    del y


def test_to_look_at_an_event_takes_no_time(x):
    """A barrier of ranks looks so; it waits only where there is work."""
    event = current(ZERO).record_event()
    before = dpkit.sim.now()
    event.is_passed()
    assert dpkit.sim.now() == before
    assert torch.sim.Event().query()  # of nothing there is nothing to ask
    assert dpkit.sim.now() == before


def current(device):
    return torch.sim.current_stream(device)


def test_an_event_of_an_idle_stream_is_passed_at_once():
    torch.sim.synchronize(ZERO)
    event = torch.sim.Event()
    event.record()
    assert event.query()


def test_events_that_cannot_tell():
    silent = torch.sim.Event()
    silent.record()
    timed = torch.sim.Event(enable_timing=True)
    with pytest.raises(ValueError, match="enable_timing"):
        silent.elapsed_time(timed)
    with pytest.raises(RuntimeError, match="recorded"):
        timed.elapsed_time(timed)


def test_streams_are_known_by_number():
    default = torch.sim.default_stream(ONE)
    assert default == torch.sim.current_stream("sim:1")
    side = torch.sim.Stream("sim:1")
    with torch.sim.stream(side):
        assert torch.sim.current_stream(1) == side != default
    assert torch.sim.current_stream(1) == default
    with torch.sim.stream(None):
        assert torch.sim.current_stream(1) == default
    torch.sim.set_stream(side)
    assert torch.sim.current_stream(1) == side
    torch.sim.set_stream(default)
    torch.sim.set_device(0)
    assert len({side, default, torch.sim.default_stream(1)}) == 2
    assert "sim:1" in repr(side)


def test_the_current_device_is_what_plain_sim_means():
    assert torch.sim.current_device() == 0
    with torch.sim.device(ONE):
        assert torch.ones(2, device="sim").device == ONE
        assert torch.sim.current_device() == 1
    torch.sim.set_device("sim:1")
    assert torch.ones(2, device="sim").device == ONE
    torch.sim.set_device(0)
    assert torch.ones(2, device="sim").device == ZERO


def test_the_device_of_a_stream_is_the_current_one():
    side = torch.sim.Stream(ONE)
    with torch.sim.stream(side):
        assert torch.ones(2, device="sim").device == ONE
        assert torch.sim.current_stream() == side
    assert torch.sim.current_device() == 0
    torch.sim.set_stream(torch.sim.default_stream(ONE))
    assert torch.sim.current_device() == 1
    torch.sim.set_device(0)


def test_waiting_for_the_current_device_leaves_the_others_at_work():
    """The trap: a synchronize without a device waits for one of them."""
    x = torch.ones(4000, 4000, device=ONE)
    dpkit.synchronize([ZERO, ONE])
    start = dpkit.sim.now()
    y = x @ x
    torch.sim.synchronize()
    too_early = dpkit.sim.now() - start
    torch.sim.synchronize(ONE)
    assert dpkit.sim.now() - start > 20 * too_early
    del y


def test_properties_name_the_preset():
    properties = torch.sim.get_device_properties(ONE)
    assert properties.name == torch.sim.get_device_name(1) == "v100"
    assert properties.total_memory == torch.sim.mem_get_info(ONE)[1] == 2**34
    with pytest.raises(RuntimeError, match="sim:8"):
        torch.sim.get_device_properties(8)


@pytest.mark.parametrize(
    ("preset", "capability", "has_bf16"),
    [("k80", (3, 7), False), ("v100", (7, 0), False), ("h100", (9, 0), True)],
)
def test_what_a_gpu_can_do(preset, capability, has_bf16):
    with dpkit.sim.machine(accelerator=preset):
        module = torch.get_device_module("sim")
        assert module.get_device_capability(ONE) == capability
        found = module.get_device_properties(ONE)
        assert (found.major, found.minor) == capability
        assert module.is_bf16_supported()
        assert module.is_bf16_supported(including_emulation=False) == has_bf16
        assert module.is_tf32_supported() == has_bf16
        assert not hasattr(found, "multi_processor_count")
        with pytest.raises(FrozenInstanceError):
            found.name = "other"


def test_what_is_no_gpu_has_no_capability():
    with dpkit.sim.machine(accelerator="laptop-cpu"):
        with pytest.raises(AttributeError, match="accelerator: 'laptop-cpu'"):
            torch.sim.get_device_capability()
        assert not hasattr(torch.sim.get_device_properties(), "major")
        assert not torch.sim.is_bf16_supported(including_emulation=False)


def test_devices_reach_each_other_where_the_link_lets_them():
    assert torch.sim.can_device_access_peer(0, 1)
    with dpkit.sim.machine(link="pcie3"):
        assert not torch.sim.can_device_access_peer(0, 1)


def test_memory_is_asked_of_a_device():
    free, total = torch.sim.mem_get_info(ONE)
    x = torch.ones(1000, device=ONE)
    assert torch.sim.mem_get_info("sim:1") == (free - 4000, total)
    torch.sim.empty_cache()
    del x


def test_each_thread_has_a_current_device_and_current_streams():
    """As on CUDA: what one thread chooses, another does not see."""
    found = []

    def other():
        found.append((torch.sim.current_device(), torch.sim.current_stream(1)))

    with torch.sim.stream(torch.sim.Stream("sim:1")):
        assert torch.sim.current_device() == 1
        thread = Thread(target=other)
        thread.start()
        thread.join()
    assert found == [(0, torch.sim.default_stream(1))]


def test_an_event_is_of_the_machine_in_which_it_is_recorded(x):
    """It may have been made, and recorded, on another one before."""
    event, early = torch.sim.Event(), torch.sim.Event()
    early.record()
    with dpkit.sim.machine():
        side = torch.sim.Stream(ZERO)
        for each in (event, early):
            with dpkit.sim.trace() as timeline:
                y = x @ x
                each.record()
                side.wait_event(each)
                with torch.sim.stream(side):
                    z = y.to("cpu", non_blocking=True)
                assert not each.query()
                each.synchronize()
                assert each.query()
            spans = {s.name: s for s in timeline.spans if s.device == "sim:0"}
            assert spans["copy to host"].start >= spans["mm"].end
            del y, z


def test_events_outlast_the_machine_that_they_were_recorded_on():
    """Their times can be read; streams of another machine do not wait."""
    with dpkit.sim.machine():
        first, last = (torch.sim.Event(enable_timing=True) for _ in range(2))
        y = torch.ones(SIZE, SIZE, device=ZERO)
        first.record()
        y @ y
        last.record()
    torch.sim.current_stream(ZERO).wait_event(last)
    assert torch.ones(2, device=ZERO).sum().item() == 2
    assert last.query() is False
    assert first.elapsed_time(last) > 0.1
