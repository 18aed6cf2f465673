"""Tests of chrome and kineto: there and back, and profiles."""

import gzip
import json
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dpkit.sim.clock.record import Block, Span
from dpkit.sim.timeline import chrome, kineto
from dpkit.sim.timeline.timeline import Timeline

FILES = ["trace.json", "trace.json.gz"]


def timeline():
    return Timeline(
        [
            Span("sim:0", "compute", "mm", "compute", 0.1, 0.3, 12, 345),
            Span("sim:1", "stream 1", "copy from sim:0", "copy", 0.3, 0.7),
            Span("host", "python", 'a "name" – of ours', "wait", 0.0, 1 / 3),
            Span("sim:0", "compute", "add", "compute", 0.3, 0.4),
        ],
        [Block("sim:0", 8, "other", -1), Block("sim:1", 4, "gradients", 0, 3)],
        ["It is a test."],
        "simulated (v100-pcie, pcie3)",
    )


def events_of(path):
    return json.loads(path.read_text())["traceEvents"]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("original", [timeline(), Timeline()])
def test_there_and_back(tmp_path, name, original):
    original.to_chrome(tmp_path / name)
    again = Timeline.from_chrome(tmp_path / name)
    assert again == original
    assert type(again) is Timeline


@given(
    st.lists(
        st.builds(
            Span,
            st.sampled_from(["host", "sim:0", "sim:10"]),
            st.text(max_size=3),
            st.text(max_size=3),
            st.sampled_from(["compute", "copy"]),
            st.floats(0, 1e4),
            st.floats(0, 1e4),
            st.integers(0, 2**60),
            st.integers(0, 2**70),
        ),
        max_size=4,
    )
)
def test_no_digit_is_lost(spans):
    content = json.dumps(chrome.as_trace(Timeline(spans)))
    assert chrome._ours(json.loads(content)["dpkit"]).spans == spans


@pytest.mark.parametrize("name", FILES)
def test_the_same_bytes_twice(tmp_path, name):
    timeline().to_chrome(tmp_path / name)
    first = (tmp_path / name).read_bytes()
    timeline().to_chrome(tmp_path / name)
    assert (tmp_path / name).read_bytes() == first
    assert (first[:2] == b"\x1f\x8b") == name.endswith(".gz")


def test_what_a_viewer_needs(tmp_path):
    timeline().to_chrome(tmp_path / "trace.json")
    events = events_of(tmp_path / "trace.json")
    assert {e["ph"] for e in events} == {"M", "X"}
    meta = {(e["name"], e["pid"], e["tid"]): e["args"] for e in events}
    spans = {e["name"]: e for e in events if e["ph"] == "X"}

    mm = spans["mm"]
    assert (mm["ts"], mm["dur"], mm["cat"]) == (100_000, 200_000, "compute")
    assert (mm["args"]["bytes"], mm["args"]["flops"]) == (12, 345)
    for name, device, stream in [
        ("mm", "sim:0", "compute"),
        ("copy from sim:0", "sim:1", "stream 1"),
    ]:
        pid, tid = spans[name]["pid"], spans[name]["tid"]
        assert meta["process_name", pid, 0] == {"name": device}
        assert meta["thread_name", pid, tid] == {"name": stream}
    order = [
        (e["args"]["sort_index"], meta["process_name", e["pid"], 0]["name"])
        for e in events
        if e["name"] == "process_sort_index"
    ]
    assert [name for _, name in sorted(order)] == ["host", "sim:0", "sim:1"]
    threads = [e["tid"] for e in events if e["name"] == "thread_name"]
    assert len(set(threads)) == len(threads), "one number for one thread"


def test_spans_that_touch_do_so_in_whole_nanoseconds():
    """A viewer drops spans of a thread that overlap."""
    ends = [i / 7e5 for i in range(200)]
    spans = [
        Span("sim:0", "compute", "mm", "compute", a, b)
        for a, b in pairwise(ends)
    ]
    events = chrome.as_trace(Timeline(spans))["traceEvents"][-len(spans) :]
    for e, after in pairwise(events):
        end = round(e["ts"] * 1000) + round(e["dur"] * 1000)
        assert end == round(after["ts"] * 1000)


# A run on two GPUs, in the form in which Kineto (libkineto/output_json.cpp,
# CuptiActivity.cpp) writes it.
MAIN, BACKWARD = 4100, 4177


def x(cat, name, pid, tid, ts, dur, **args):
    place = {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid}
    return {**place, "ts": T + ts, "dur": dur, "args": args}


def op(name, ts, dur, tid=MAIN):
    return x("cpu_op", name, MAIN, tid, ts, dur, **{"External id": 7})


def call(name, ts, dur, tid=MAIN, cat="cuda_runtime"):
    return x(cat, name, MAIN, tid, ts, dur, cbid=211, correlation=9)


def work(cat, name, device, stream, ts, dur, **more):
    where = {"device": device, "context": 1, "stream": stream}
    return x(cat, name, device, stream, ts, dur, **where, **more)


def moved(words, device, ts, dur, num_bytes):
    name = f"Memcpy {words}"
    return work("gpu_memcpy", name, device, 7, ts, dur, bytes=num_bytes)


def peer_copy(source, target, ts, dur, num_bytes):
    where = {"fromDevice": source, "inDevice": source, "toDevice": target}
    where |= {"fromContext": 1, "inContext": 1, "toContext": 2, "stream": 7}
    name = "Memcpy PtoP (Device -> Device)"
    place = "gpu_memcpy", name, source, 7
    return x(*place, ts, dur, **where, bytes=num_bytes)


def meta(what, pid, tid, **args):
    place = {"pid": pid, "tid": tid}
    return {"name": what, "ph": "M", "ts": T, **place, "args": args}


def flow(phase, pid, tid, ts):
    place = {"pid": pid, "tid": tid, "ts": T + ts}
    return {"ph": phase, "id": 9, "cat": "ac2g", "name": "ac2g", **place}


T = 4301144408060.0  # µs since Kineto's own zero
KERNEL = "void at::native::vectorized_elementwise_kernel<4>(int, float*)"
ALLREDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
PROFILE = {
    "schemaVersion": 1,
    "deviceProperties": [
        {"id": 0, "name": "NVIDIA H200", "totalGlobalMem": 150_000_000_000},
        {"id": 1, "name": "NVIDIA H200", "totalGlobalMem": 150_000_000_000},
        {"id": 2, "name": "NVIDIA T4", "totalGlobalMem": 16_000_000_000},
    ],
    "displayTimeUnit": "ms",
    "baseTimeNanoseconds": 1790857026000000000,
    "traceEvents": [
        meta("process_name", MAIN, 0, name="python"),
        meta("process_labels", MAIN, 0, labels="CPU"),
        meta("process_name", 0, 0, name="python"),
        meta("process_labels", 0, 0, labels="GPU 0"),
        meta("thread_name", 0, 7, name="stream 7 "),
        meta("thread_name", MAIN, MAIN, name=f"thread {MAIN} (python)"),
        meta("thread_name", MAIN, BACKWARD, name="thread 1 (pt_autograd_0)"),
        x("python_function", "train.py(3): step", MAIN, MAIN, -50, 999),
        x("user_annotation", "ProfilerStep#1", MAIN, MAIN, -50, 999),
        op("aten::linear", 0, 40),
        op("aten::addmm", 5, 30),
        call("cudaLaunchKernel", 10, 8.25),
        flow("s", MAIN, MAIN, 10),
        op("aten::to", 40, 20),
        call("cudaMemcpyAsync", 45, 10),
        op("AddmmBackward0", 70, 30, BACKWARD),
        call("cuLaunchKernelEx", 75, 5, BACKWARD, "cuda_driver"),
        call("cudaStreamWaitEvent", 105, 1),
        call("cudaStreamSynchronize", 110, 5),
        call("cudaDeviceSynchronize", 120, 80.5),
        work("kernel", KERNEL, 0, 7, 20, 30.125, grid=[1, 1, 1]),
        flow("f", 0, 7, 20),
        work("kernel", ALLREDUCE, 1, 20, 60, 9),
        moved("HtoD (Pageable -> Device)", 0, 51, 6, 4096),
        moved("DtoH (Device -> Pinned)", 1, 80, 2, 16),
        moved("DtoD (Device -> Device)", 0, 62, 1, 64),
        work("gpu_memset", "Memset (Device)", 1, 7, 64, 1, bytes=128),
        peer_copy(0, 1, 90, 10, 2048),
        work("gpu_user_annotation", "step", 0, 7, 20, 200),
        work("cuda_sync", "Stream Wait Event", 0, 7, 60, 9),
        x("Trace", "PyTorch Profiler (0)", "Spans", "PyTorch", -60, 999),
        {"name": "Record Window End", "ph": "i", "pid": "", "tid": ""},
    ],
    "traceName": "step.json",
}
# Device and stream; kind; start and end in µs; bytes; name.
SPANS = f"""\
host python; launch; 0 40; 0; aten::linear
host python calls; launch; 10 18.25; 0; cudaLaunchKernel
cuda:0 stream 7; compute; 20 50.125; 0; {KERNEL}
host python; launch; 40 60; 0; aten::to
host python calls; launch; 45 55; 0; cudaMemcpyAsync
cuda:0 stream 7; copy; 51 57; 4096; copy from host (pageable)
cuda:1 stream 20; copy; 60 69; 0; {ALLREDUCE}
cuda:0 stream 7; compute; 62 63; 64; Memcpy DtoD (Device -> Device)
cuda:1 stream 7; compute; 64 65; 128; Memset (Device)
host backward 0; launch; 70 100; 0; AddmmBackward0
host backward 0 calls; launch; 75 80; 0; cuLaunchKernelEx
cuda:1 stream 7; copy; 80 82; 16; copy to host (pinned)
cuda:0 stream 7; copy; 90 100; 2048; copy to cuda:1
cuda:1 peer copies; copy; 90 100; 2048; copy from cuda:0
host python calls; launch; 105 106; 0; cudaStreamWaitEvent
host python calls; wait; 110 115; 0; cudaStreamSynchronize
host python calls; wait; 120 200.5; 0; cudaDeviceSynchronize
"""


def profile(tmp_path, content=PROFILE, name="step.json"):
    words = json.dumps(content).encode()
    if name.endswith(".gz"):
        words = gzip.compress(words)
    (tmp_path / name).write_bytes(words)
    return Timeline.from_chrome(tmp_path / name)


@pytest.mark.parametrize("name", FILES)
def test_a_profile_of_two_gpus(tmp_path, name):
    measured = profile(tmp_path, name=name)
    found = [
        f"{s.device} {s.stream}; {s.kind}; {s.start * 1e6:.7g} "
        f"{s.end * 1e6:.7g}; {s.num_bytes}; {s.name}\n"
        for s in measured.spans
    ]
    assert "".join(found) == SPANS
    assert measured.label == "measured (NVIDIA H200)"
    assert "torch.profiler" in measured.assumptions[0]


def test_a_profile_adds_up(tmp_path):
    summary = profile(tmp_path).summary()
    assert summary.makespan == pytest.approx(200.5e-6)
    assert summary.devices["cuda:0"].bytes_sent == 2048
    assert summary.devices["cuda:0"].bytes_received == 4096
    assert summary.devices["cuda:1"].bytes_received == 2048
    # Launching is what lies in operations or calls, and does not wait.
    assert summary.hosts["host"].waiting == pytest.approx(85.5e-6)
    assert summary.hosts["host"].busy == pytest.approx((60 + 30 + 1) * 1e-6)


def test_a_profile_goes_through_our_own_file(tmp_path):
    measured = profile(tmp_path)
    measured.to_chrome(tmp_path / "ours.json.gz")
    assert Timeline.from_chrome(tmp_path / "ours.json.gz") == measured


def test_processes_and_threads_are_told_apart():
    events = [
        x("cpu_op", "a", 70, 72, 5, 1),
        x("cpu_op", "b", 70, 70, 6, 1),
        x("cpu_op", "c", 90, 91, 7, 1),
        x("cuda_runtime", "cudaLaunchKernel", 90, 93, 8, 1),
    ]
    spans = kineto.read_profile({"traceEvents": events}).spans
    assert [(s.name, s.device, s.stream) for s in spans] == [
        ("a", "host:0", "thread 1"),
        ("b", "host:0", "python"),
        ("c", "host:1", "python"),
        ("cudaLaunchKernel", "host:1", "thread 1 calls"),
    ]


def test_a_profile_of_devices_alone():
    spans = kineto.read_profile(
        {"traceEvents": [work("kernel", "mm", 0, 7, 20, 30)]}
    ).spans
    assert [(s.name, s.device) for s in spans] == [("mm", "cuda:0")]


@pytest.mark.parametrize("name", FILES)
def test_a_profile_of_the_cpu_as_torch_writes_it(tmp_path, name):
    layer, batch = torch.nn.Linear(7, 3), torch.randn(5, 7)
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities) as profiler:
        layer(batch).sum().backward()
    profiler.export_chrome_trace(str(tmp_path / name))
    measured = Timeline.from_chrome(tmp_path / name)

    names = [span.name for span in measured.spans]
    assert names[:2] == ["aten::linear", "aten::sum"]
    assert any("AddmmBackward0" in name for name in names)
    assert not {"aten::addmm", "aten::mm"} & set(names), "they lie within"
    assert {(s.device, s.kind) for s in measured.spans} == {("cpu", "compute")}
    assert measured.spans[0].start == 0
    assert measured.label == "measured (CPU)"
    ends = [(s.start, s.end) for s in measured.spans if s.stream == "python"]
    assert all(a[1] <= b[0] for a, b in pairwise(ends))


def test_operations_lie_within_others():
    """Also in one that starts with them, and whatever comes first."""
    events = [op("inner", 0, 3), op("outer", 0, 9), op("next", 9, 1)]
    events += [op("inner", 3, 6), op("another thread", 4, 1, BACKWARD)]
    events += [call("cuLaunchKernel", 1, 1, cat="cuda_driver")]
    events += [call("cudaLaunchKernel", 0, 2.5)]
    spans = kineto.read_profile({"traceEvents": events}).spans
    names = ["cudaLaunchKernel", "outer", "another thread", "next"]
    assert [span.name for span in spans] == names


def test_what_a_file_is_does_not_hang_on_its_name(tmp_path):
    timeline().to_chrome(tmp_path / "trace.json.gz")
    (tmp_path / "trace.json.gz").rename(tmp_path / "trace.json")
    assert Timeline.from_chrome(tmp_path / "trace.json") == timeline()


def test_bytes_that_are_no_text_do_not_hinder(tmp_path):
    words = json.dumps([op("aten::m?", 3, 4)]).encode()
    (tmp_path / "a").write_bytes(words.replace(b"?", b"\xff\n"))
    assert Timeline.from_chrome(tmp_path / "a").spans[0].name == "aten::m�\n"


def test_a_list_of_events_is_a_trace_too(tmp_path):
    measured = profile(tmp_path, [op("aten::mm", 3, 4)])
    assert measured.makespan == pytest.approx(4e-6)


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"no trace", r"not a trace: not JSON \(path: .*bad"),
        (b"\x1f\x8bno trace", "not a trace: not JSON"),
        (gzip.compress(b"{}", mtime=0)[:-9], "not a trace: not JSON"),
        (b"3", "neither a list nor an object"),
        (b"{}", "no list traceEvents"),
        (b'{"traceEvents": 3}', "no list traceEvents"),
        (b'{"traceEvents": []}', r"no events .*events: 0, categories: \[\]"),
        (
            b'{"traceEvents": [{"ph": "X", "cat": "Trace"}, {"ph": "i"}]}',
            r"no events of devices .*events: 2, categories: \['Trace'\]",
        ),
        (b'{"traceEvents": [3]}', "not in the form"),
        (
            b'{"traceEvents": [{"ph": "X", "cat": "cpu_op"}]}',
            "not in the form",
        ),
        (b'{"dpkit": {}, "traceEvents": []}', "not in the form"),
    ],
)
def test_what_is_no_trace_is_refused(tmp_path, content, error):
    (tmp_path / "bad").write_bytes(content)
    with pytest.raises(ValueError, match=error) as raised:
        Timeline.from_chrome(tmp_path / "bad")
    assert str(tmp_path / "bad") in str(raised.value)
