"""Calibration: it finds again what it was told, and counts nothing twice."""

from dataclasses import fields, replace

import pytest
import torch

import dpkit
from dpkit.calibration import probes as lab
from dpkit.calibration.calibrate import calibrate
from dpkit.calibration.conditions import cpu_name, doubts, provenance
from dpkit.calibration.fitted_presets import DeviceFacts, to_presets
from dpkit.calibration.fitting import fit_line
from dpkit.calibration.probes import ON_CPU, Sizes, probes
from dpkit.calibration.stopwatch import (
    ENOUGH_SECONDS,
    Probe,
    fastest,
    measure,
    spread_of,
)
from dpkit.sim.clock.clock import Clock
from dpkit.sim.hardware import ACCELERATORS, HOSTS, LINKS
from dpkit.sim.hardware.clusters import Cluster
from dpkit.sim.hardware.costs import (
    achieved_flops_per_second,
    copy_seconds,
    operation_seconds,
)

CPU = torch.device("cpu")
SMALL = Sizes(
    rows=[1, 4, 16, 64],
    lengths=[1, 8, 64, 4096],
    images=[(1, 64, 32), (2, 64, 32)],  # so large that the device is late
    chains=[3, 20],
    pool=50_000,
)
# So far apart that times grow on a busy machine too.
APART = Sizes(
    rows=[1, 300],
    lengths=[1, 1_000_000],
    images=[(1, 8, 8), (4, 64, 28)],
    chains=[3, 200],
    pool=4_000_000,
)


class Stopwatch:
    """A clock that goes on only when work is done."""

    def __init__(self):
        self.seconds = 0.0
        self.log = []

    def now(self):
        return self.seconds

    def probe(self, kind, size, takes, settling=0.0):
        """Return a probe whose calls take ``takes()`` seconds."""

        def call():
            self.log.append((kind, size))
            self.seconds += takes()

        def settle():
            self.seconds += settling

        return Probe(kind, size, [call], settle)


# -- fitting


@pytest.mark.parametrize("fixed", [0.0, 1e-6, 3e-3])
@pytest.mark.parametrize("rate", [1e3, 1e13])
def test_a_line_is_found_again(fixed, rate):
    sizes = [rate * 10.0**k for k in range(-9, 1)]
    line = fit_line([(size, fixed + size / rate) for size in sizes])
    assert line.fixed == pytest.approx(fixed, rel=1e-6, abs=1e-15)
    assert line.rate == pytest.approx(rate, rel=1e-6)


def test_half_of_a_time_is_as_wrong_as_twice_of_it():
    """1 and 4 seconds, or 2 and 8, for the same: 2 seconds, or 4."""
    line = fit_line([(10, 1.0), (10, 4.0), (20, 2.0), (20, 8.0)])
    assert line.seconds(10) == pytest.approx(2.0, rel=1e-2)
    assert line.seconds(20) == pytest.approx(4.0, rel=1e-2)


def test_short_times_count_as_much_as_long_ones():
    """A second too much at the end does not move the beginning."""
    samples = [(10.0**k, 1e-6 + 10.0**k / 1e9) for k in range(10)]
    samples[-1] = (1e9, 2.0)
    assert fit_line(samples).seconds(1) == pytest.approx(1e-6, rel=0.05)


def test_what_is_fixed_is_not_negative():
    line = fit_line([(10, 0.5), (20, 2.0)])
    assert line.fixed == 0
    assert line.rate > 0


@pytest.mark.parametrize("samples", [[(1, 2.0), (3, 1.0)]])
def test_times_that_do_not_grow_are_refused(samples):
    with pytest.raises(ValueError, match="do not grow with sizes"):
        fit_line(samples)


# -- the stopwatch


def test_the_fastest_round_counts():
    watch = Stopwatch()
    takes = iter([1.0, 1.0, 5.0, 3.0, 4.0])  # two to warm up
    probe = watch.probe("sum", 7, lambda: next(takes))
    found = measure([probe], rounds=3, now=watch.now)
    assert found == {"sum": [(7, [5.0, 3.0, 4.0])]}
    assert fastest(found) == {"sum": [(7, 3.0)]}


def test_short_calls_are_timed_together():
    watch = Stopwatch()
    probe = watch.probe("sum", 7, lambda: ENOUGH_SECONDS / 100)
    ((size, (seconds,)),) = measure([probe], 1, watch.now)["sum"]
    assert (size, seconds) == (7, pytest.approx(ENOUGH_SECONDS / 100))
    in_the_round = 128
    assert len(watch.log) == 1 + (1 + 2 + 4 + 8 + 16 + 32 + 64 + 128) + (
        in_the_round
    )


def test_settling_is_not_timed():
    watch = Stopwatch()
    probe = watch.probe("sum", 7, lambda: 1.0, settling=100.0)
    assert measure([probe], 2, watch.now) == {"sum": [(7, [1.0, 1.0])]}


def test_calls_of_a_probe_take_turns():
    """Each has operands of its own, which no cache remembers."""
    watch = Stopwatch()
    three = [watch.probe("sum", k, lambda: 6e-4).calls[0] for k in range(3)]
    found = measure([Probe("sum", 7, three)], 1, watch.now)
    assert fastest(found) == {"sum": [(7, pytest.approx(6e-4))]}
    assert watch.log[-4:] == [("sum", k) for k in (0, 1, 2, 0)]


def test_operands_come_from_memory(monkeypatch):
    """Parts of a pool that is larger than the caches of most machines."""
    # What is never written takes no memory, and no values are looked at.
    monkeypatch.setattr(torch, "rand", torch.empty)
    sums = [p for p in probes(CPU) if p.kind == "elementwise"]
    for probe in sums:
        touched = probe.size * len(probe.calls)
        assert touched >= 2**27 or len(probe.calls) == 1000
    operands = [call.args for call in sums[0].calls]
    assert len({x.data_ptr() for pair in operands for x in pair}) == 2000


def test_probes_take_turns():
    watch = Stopwatch()
    found = measure(
        [watch.probe(kind, n, lambda: 1.0) for kind, n in
         (("sum", 1), ("copy", 1), ("sum", 2))],
        rounds=2,
        now=watch.now,
    )  # fmt: skip
    assert fastest(found) == {
        "sum": [(1, 1.0), (2, 1.0)],
        "copy": [(1, 1.0)],
    }
    turn = [("sum", 1), ("copy", 1), ("sum", 2)]
    assert watch.log[-6:] == turn + turn


# -- what is fixed is counted once


def law_of_a_cpu(half_flops, half_bytes):
    """The seconds that each probe of a CPU takes, by kind and size."""
    return {
        "product float32": lambda n: 2e-6 + (n + half_flops) / 1e11,
        "product float64": lambda n: 2e-6 + (n + half_flops) / 5e10,
        "fast convolution float32": lambda n: 2e-6 + n / 1.5e11,
        "other convolution float32": lambda n: 2e-6 + n / 4e10,
        "elementwise": lambda n: 2e-6 + (n + half_bytes) / 4e10,
        "backward": lambda k: 5e-6 + k * (3e-6 + half_bytes / 4e10),
        "view": lambda _: 9e-7,
        "copy": lambda n: 2.5e-6 + half_bytes / 4e10 + n / 2e10,
        "copy to new memory": lambda n: 2.5e-6 + n / 1e10,
    }


@pytest.mark.parametrize("half_flops", [0.0, 1e5])
@pytest.mark.parametrize("half_bytes", [0.0, 4e4])
def test_a_cpu_takes_what_was_measured(half_flops, half_bytes):
    """By the clock, operations of all sizes, forward and backward."""
    law, watch = law_of_a_cpu(half_flops, half_bytes), Stopwatch()
    fakes = [
        watch.probe(p.kind, p.size, lambda p=p: law[p.kind](p.size))
        for p in probes(CPU, SMALL)
    ]
    times = fastest(measure(fakes, 1, watch.now))
    found = to_presets(times, DeviceFacts("cpu", 2**30, True), "here")
    accelerator = found.accelerator
    cluster = Cluster(1, accelerator, found.link, found.host)
    for n in (1, 10_000, 10**9):
        for kind, work in (
            ("product float32", {"flops": n, "num_bytes": 0}),
            ("elementwise", {"flops": 0, "num_bytes": n}),
        ):
            clock = Clock(cluster)
            clock.compute(
                0, kind, seconds=operation_seconds(accelerator, **work)
            )
            clock.wait(0)
            assert clock.now() == pytest.approx(law[kind](n), rel=1e-4)
    for kind, rate in (("fast", 1.5e11), ("other", 4e10)):
        reached = achieved_flops_per_second(accelerator, "float32", kind)
        assert reached == pytest.approx(rate, rel=1e-3)
    clock = Clock(cluster)
    clock.begin_backward()
    for _ in range(100):
        clock.compute(
            0,
            "x",
            seconds=operation_seconds(accelerator, flops=0, num_bytes=1),
        )
    clock.end_backward()
    expected = law["backward"](100) - law["backward"](0)
    assert clock.now() == pytest.approx(expected, rel=1e-4)
    clock = Clock(cluster)
    clock.copy(
        None,
        0,
        seconds=copy_seconds(found.link, 1e6),
        num_bytes=10**6,
        blocking=True,
    )
    assert clock.now() == pytest.approx(law["copy"](1e6), rel=1e-4)
    assert found.host.view_seconds == pytest.approx(9e-7)
    assert found.host.new_memory_bytes_per_second == pytest.approx(1e10)
    assert found.host.to_device_bytes_per_second == pytest.approx(1e10)


def gpu_with_convolutions(samples):
    """Return the rate that follows from convolutions of a GPU, in FLOP/s."""
    law, watch = law_of_a_cpu(0.0, 0.0), Stopwatch()
    fakes = [
        watch.probe(p.kind, p.size, lambda p=p: law[p.kind](p.size))
        for p in probes(CPU, SMALL)
    ]
    times = fastest(measure(fakes, 1, watch.now))
    times |= {"launch": [(1, 1e-6)], "wait": [(1, 0.0)]}
    times["fast convolution float32"] = samples
    found = to_presets(times, DeviceFacts("gpu", 2**30, False), "here")
    return achieved_flops_per_second(found.accelerator, "float32", "fast")


def test_convolutions_that_only_their_host_holds_up_tell_no_rate():
    """Issuing takes 200 µs, however little the GPU then computes."""
    issuing, rate = 2e-4, 1e13
    computing = [(10**10, 1e-3), (10**11, 1e-2)]
    held_up = [(10**3, issuing), (10**6, issuing), (10**9, 1.5 * issuing)]
    found = gpu_with_convolutions(held_up + computing)
    assert found == pytest.approx(rate, rel=0.01)


@pytest.mark.parametrize(
    "samples",
    [[(10**9, 2e-4)], [(10**6, 1.5e-4), (10**9, 2e-4)]],
    ids=["one", "none takes longer"],
)
def test_the_largest_convolution_tells_the_rate_where_no_other_can(samples):
    found = gpu_with_convolutions(samples)
    assert found == pytest.approx(10**9 / 2e-4, rel=0.02)


@pytest.mark.parametrize("launch", [1e-6, 4e-6, 1.0])
@pytest.mark.parametrize("wait", [0.0, 3e-6, 1.0])
def test_parts_are_never_negative_nor_more_than_the_whole(launch, wait):
    """Noise may make a launch or a wait longer than all of it."""
    times = {
        kind: [(n, law(n)) for n in (1, 10**4, 10**8)]
        for kind, law in law_of_a_cpu(1e5, 4e4).items()
        if kind not in ("view", "launch", "wait")
    }
    times |= {"view": [(1, 9e-7)], "launch": [(1, launch)]}
    times["wait"] = [(1, wait)]
    found = to_presets(times, DeviceFacts("gpu", 2**30, False), "here")
    host, accelerator = found.host, found.accelerator
    shares = host.launch_seconds, host.wait_seconds, accelerator.kernel_seconds
    assert min(shares) >= 0
    whole = law_of_a_cpu(1e5, 4e4)["elementwise"](0)
    half = accelerator.half_bytes / accelerator.bytes_per_second
    assert sum(shares) + half == pytest.approx(whole, rel=1e-4)
    assert accelerator.half_flops >= 0
    assert accelerator.half_bytes >= 0


@pytest.fixture
def simulated_peers(monkeypatch):
    """Devices that reach each other; a GPU's driver would tell."""
    dpkit.devices(2, kind="sim")
    monkeypatch.setattr(
        torch.sim, "can_device_access_peer", lambda a, b: True, raising=False
    )


@pytest.mark.usefixtures("simulated_peers")
def test_a_simulated_gpu_is_found_again(monkeypatch):
    """Calibrated by its own clock, a preset gives itself.

    Each of its numbers is another one than that of the default.
    """
    # Convolutions of other dtypes take the CPU very long.
    monkeypatch.setattr(lab, "GPU_CONVOLUTIONS", ("float32",))
    name, link, host = "k80", "nvlink3", "eager-program"
    sizes = replace(SMALL, images=[(1, 8, 8), *SMALL.images])
    with dpkit.sim.machine(accelerator=name, link=link, host=host):
        found = calibrate(
            torch.device("sim:0"), sizes, rounds=1, now=dpkit.sim.now
        )
    true, same = ACCELERATORS[name], found.accelerator
    for dtype in ("float32", "float64", "bfloat16"):
        assert achieved_flops_per_second(same, dtype) == pytest.approx(
            achieved_flops_per_second(true, dtype), rel=1e-4
        )
    for kind in ("fast", "other"):
        # Issuing them, and too little work to fill it, are in the rate.
        reached = achieved_flops_per_second(same, "float32", kind)
        full = achieved_flops_per_second(true, "float32", kind)
        assert 0.5 * full < reached < full
    for n in (1, 10**6, 10**12):
        assert operation_seconds(same, flops=n, num_bytes=0) == pytest.approx(
            operation_seconds(true, flops=n, num_bytes=0), rel=1e-4
        )
    for n in (1, 10**6, 10**12):
        assert operation_seconds(same, flops=0, num_bytes=n) == pytest.approx(
            operation_seconds(true, flops=0, num_bytes=n), rel=1e-4
        )
    for part in fields(HOSTS[host]):
        if part.name not in ("name", "sources"):
            assert getattr(found.host, part.name) == pytest.approx(
                getattr(HOSTS[host], part.name), rel=1e-4
            ), part.name
    for ours, theirs in (
        (found.link, LINKS[link]),
        (same.host_link, LINKS[true.host_link]),
    ):
        assert ours.peer_to_peer == theirs.peer_to_peer
        for n in (1, 10**6):
            assert copy_seconds(ours, n) == pytest.approx(
                copy_seconds(theirs, n), rel=1e-4
            )
    assert same.memory_bytes == true.memory_bytes
    assert same.compute_capability == true.compute_capability != ""
    assert not same.synchronous


# -- for real


@pytest.fixture(scope="module")
def this_cpu():
    return calibrate(CPU, APART, rounds=3)


def test_this_cpu_is_measured(this_cpu):
    found = this_cpu
    assert found.accelerator.name == cpu_name()
    assert found.accelerator.synchronous
    assert 1e-7 < found.host.launch_seconds < 1e-3
    assert 1e7 < found.accelerator.flops_per_second["float32"] < 1e16
    assert found.link is found.accelerator.host_link
    assert found.spread > 0  # no two rounds take the same
    with dpkit.sim.machine(
        accelerator=found.accelerator, host=found.host, link=found.link
    ):
        (zero,) = dpkit.devices(1, kind="sim")
        with dpkit.Timer([zero]) as timer:
            torch.ones(3, device=zero) + 1
        assert timer.seconds > 0


def test_each_number_has_a_source(this_cpu):
    found = this_cpu
    for preset in (found.accelerator, found.host, found.link):
        told = {f.name for f in fields(preset)} - {"name", "sources"}
        told -= {"synchronous", "peer_to_peer"}
        told -= {"library_step_seconds", "library_share"}  # assumed
        assert set(preset.sources) == told
    assert "calibrate on" in found.host.sources["launch_seconds"]
    assert "float32" in str(found)


def test_no_network_is_timed():
    """Only what it is made of: so training steps can test the presets."""
    kinds = {probe.kind for probe in probes(CPU, SMALL)}
    assert kinds == {
        "product float32",
        "product float64",
        "fast convolution float32",
        "other convolution float32",
        "elementwise",
        "backward",
        "view",
        "copy",
        "copy to new memory",
    }
    assert max(ON_CPU.lengths) * 4 <= 16 * 2**20


@pytest.mark.parametrize("precision", ["highest", "medium"])
def test_calibrating_leaves_the_precision_as_it_was(precision):
    dpkit.devices(1, kind="sim")
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision(precision)
        for probe in probes(
            torch.device("sim:0"), Sizes([2], [3], [(1, 2, 3)], pool=20)
        ):
            for call in probe.calls:
                call()
        assert torch.get_float32_matmul_precision() == precision
    finally:
        torch.set_float32_matmul_precision(before)


def test_how_steady_the_repetitions_were():
    """It is a median: half of the rounds and of the probes may be off."""
    watch = Stopwatch()
    takes = iter([1.0, 1.0, 3.0, 2.0, 2.5, 9.0, 2.0])  # two to warm up
    uneven = watch.probe("sum", 7, lambda: next(takes))
    even = watch.probe("copy", 7, lambda: 1.0)
    rounds = measure([uneven], 5, watch.now)
    assert spread_of(rounds) == pytest.approx(0.25)
    assert spread_of(rounds | measure([even], 5, watch.now)) == pytest.approx(
        0.125
    )


@pytest.mark.parametrize(
    ("load", "threads", "cores", "is_busy"),
    [
        (0.4, 2, 2, False),
        (0.6, 2, 2, True),
        (1.4, 1, 2, False),
        (1.6, 1, 2, True),
        (9.0, 64, 64, True),
    ],
)
def test_busy_is_who_has_no_core_for_each_thread(
    monkeypatch, load, threads, cores, is_busy
):
    monkeypatch.setattr("os.cpu_count", lambda: cores)
    found = doubts(0.0, load, threads)
    assert ["busy" in doubt for doubt in found] == [True] * is_busy


def test_provenance_tells_what_was_measured():
    facts = provenance("python -m dpkit calibrate", CPU)
    for key in ("command", "date", "device", "device_name", "cpu", "torch"):
        assert facts[key], key
    assert facts["cpu_threads"] == torch.get_num_threads()


@pytest.mark.cuda
def test_a_gpu_is_measured(need_gpus):
    need_gpus(1)
    found = calibrate(torch.device("cuda:0"), rounds=2)
    accelerator, host = found.accelerator, found.host
    assert accelerator.name == torch.cuda.get_device_name(0)
    assert set(accelerator.flops_per_second) == {
        "float64", "float32", "tf32", "float16", "bfloat16",
    }  # fmt: skip
    assert 1e-6 < host.launch_seconds < 1e-4
    assert 1e10 < accelerator.bytes_per_second < 1e14
    assert not accelerator.synchronous
