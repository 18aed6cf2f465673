"""What torch.profiler wrote, as a timeline.

``export_chrome_trace`` names each event by a category. "kernel", "gpu_memcpy"
and "gpu_memset" ran on a device. "cuda_runtime" and "cuda_driver" are calls of
the host to it. "cpu_op" is an operation of PyTorch on the host. Operations
contain each other: the outermost are taken. Calls lie within operations, so
they have their own row.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dpkit.sim.clock.record import Record, Row, Span

TraceEvent = dict[str, Any]
Place = tuple[Any, Any]  # process and thread
WORK = ("kernel", "gpu_memcpy", "gpu_memset")
CALLS = ("cuda_runtime", "cuda_driver")
PROFILE_ASSUMPTIONS = (
    "The times are measured, by torch.profiler, which itself takes the host "
    "some time for every operation.",
    "Of operations that contain others, the outermost is shown.",
    "The profiler tells the bytes of copies, not those of kernels, and no "
    "flops.",
)


def read_profile(content: Mapping[str, Any]) -> Record:
    """Return the timeline in a trace; it is empty if nothing ran in it."""
    every = content["traceEvents"]
    events = [e for e in every if e.get("ph") == "X"]
    work = [e for e in events if e.get("cat") in WORK]
    calls = outermost(e for e in events if e.get("cat") in CALLS)
    ops = outermost(e for e in events if e.get("cat") == "cpu_op")
    if not (work or calls or ops):
        return Record()
    zero = min(_nanoseconds(e)[0] for e in [*work, *calls, *ops])
    rows = _rows(every, [*calls, *ops])
    spans = [span for e in work for span in _on_device(e, zero)]
    alone = not work and not calls
    spans += [
        _on_host(event, *rows[_thread(event)], zero, alone=alone)
        for event in [*calls, *ops]
    ]
    spans.sort(key=lambda span: (span.start, span.end))
    return Record(spans, [], list(PROFILE_ASSUMPTIONS), _label(content, work))


def outermost(events: Iterable[TraceEvent]) -> list[TraceEvent]:
    """Return the events that lie within no other event of their thread."""
    # linear 0–6 contains mm 2–5, relu 6–7 follows: linear and relu are left.
    found: list[TraceEvent] = []
    reached: dict[Place, int] = {}
    times = [(*_nanoseconds(event), event) for event in events]
    for start, end, event in sorted(times, key=lambda t: (t[0], -t[1])):
        thread = _thread(event)
        if thread not in reached or start >= reached[thread]:
            found.append(event)
            reached[thread] = end
    return found


def _thread(event: TraceEvent) -> Place:
    return event["pid"], event["tid"]


def _nanoseconds(event: TraceEvent) -> tuple[int, int]:
    """Return start and end as whole numbers: the files have no more digits."""
    start = round(event["ts"] * 1000)
    return start, start + round(event.get("dur", 0) * 1000)


def _span(
    event: TraceEvent, zero: int, row: Row, *, kind: str, name: str = ""
) -> Span:
    start, end = ((mark - zero) / 1e9 for mark in _nanoseconds(event))
    num_bytes = int(event.get("args", {}).get("bytes", 0))
    device, stream = row
    return Span(
        device=device,
        stream=stream,
        name=name or event["name"],
        kind=kind,
        start=start,
        end=end,
        num_bytes=num_bytes,
    )


def _on_device(event: TraceEvent, zero: int) -> list[Span]:
    """Return what ran on a device; a copy between two ran on both."""
    args = event.get("args", {})
    number = args.get("device", args.get("inDevice", event["pid"]))
    stream = f"stream {args.get('stream', event['tid'])}"
    source = args.get("fromDevice")
    target = args.get("toDevice")
    if source == target:
        row = f"cuda:{number}", stream
        kind, name = _kind_and_name(event)
        return [_span(event, zero, row, kind=kind, name=name)]
    ends = {
        source: f"copy to cuda:{target}",
        target: f"copy from cuda:{source}",
    }
    spans = []
    for end, name in ends.items():
        # The file has the stream of one end alone.
        row = f"cuda:{end}", stream if end == number else "peer copies"
        spans.append(_span(event, zero, row, kind="copy", name=name))
    return spans


def _kind_and_name(event: TraceEvent) -> tuple[str, str]:
    """Return the kind and the name of what ran on one device."""
    name: str = event["name"]
    if event["cat"] == "gpu_memcpy":
        copy = re.match(r"Memcpy (HtoD|DtoH) \((\w+) -> (\w+)\)", name)
        if copy and copy[1] == "HtoD":
            return "copy", f"copy from host ({copy[2].lower()})"
        if copy:
            return "copy", f"copy to host ({copy[3].lower()})"
        # A copy within a device is traffic to its memory, as a kernel's is.
        return "copy" if "PtoP" in name else "compute", name
    return "copy" if name.startswith("nccl") else "compute", name


def _on_host(
    event: TraceEvent, host: str, thread: str, zero: int, *, alone: bool
) -> Span:
    """Return a call to a device, which launches or waits, or an operation."""
    if event["cat"] in CALLS:
        kind = "wait" if "Synchronize" in event["name"] else "launch"
        return _span(event, zero, (host, f"{thread} calls"), kind=kind)
    if alone:  # without a device the operations of the CPU compute
        row = host.replace("host", "cpu"), thread
        return _span(event, zero, row, kind="compute")
    return _span(event, zero, (host, thread), kind="launch")


def _rows(
    events: Iterable[TraceEvent], used: Sequence[TraceEvent]
) -> dict[Place, Row]:
    """Return host and stream of each thread that the ``used`` ran on."""
    names = {
        _thread(event): str(event["args"]["name"])
        for event in events
        if event.get("name") == "thread_name"
    }
    in_time = sorted(used, key=lambda event: _nanoseconds(event)[0])
    used_threads = list(dict.fromkeys(map(_thread, in_time)))
    processes = list(dict.fromkeys(process for process, _ in used_threads))
    rows = {}
    for i, process in enumerate(processes):
        host = "host" if len(processes) == 1 else f"host:{i}"
        threads = [thread for thread in used_threads if thread[0] == process]
        main = (process, process)
        main = main if main in threads else threads[0]
        rows[main] = host, "python"
        threads.remove(main)
        for k, thread in enumerate(threads, 1):
            engine = re.search(r"pt_autograd_(\d+)", names.get(thread, ""))
            word = f"backward {engine[1]}" if engine else f"thread {k}"
            rows[thread] = host, word
    return rows


def _label(content: Mapping[str, Any], work: Sequence[TraceEvent]) -> str:
    """Return "measured" and the names of the devices that worked."""
    used = {event.get("args", {}).get("device") for event in work}
    known = content.get("deviceProperties", [])
    found = [d["name"] for d in known if d.get("id") in used]
    names = ", ".join(dict.fromkeys(found)) or ("GPU" if work else "CPU")
    return f"measured ({names})"
