"""A run of chapters on GPUs ends with what has run on them, by chapter.

A plugin of pytest, beside nbval: ``-p tests.running.gpus_used``. After each
cell it asks the kernel which GPUs have taken memory for tensors meanwhile::

    a tensor on cuda:1                        GPU 1
    one on cuda:0, no simulated device used   GPU 0
    one on cuda:0, in a cell that uses        GPU 0, if dpkit.devices has
    simulated devices too                     given cuda:0 in this cell

The last row is there because a GPU may hold the values of simulated devices.
What a cell starts in other processes is not seen.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

SECONDS = 1200.0
# Runs in the kernel before the first cell. What is imported later takes the
# function by its name from these modules.
PROBE = """
def _watch_gpus():
    import json, sys
    import torch, dpkit, dpkit.machine
    from dpkit.sim.devices.configuration import simulation

    given, seen = set(), {}
    devices = dpkit.machine.devices

    def noted(count=None, kind=None):
        found = devices(count, kind)
        given.update(d.index for d in found if d.type == "cuda")
        return found

    for module in list(sys.modules.values()):
        if getattr(module, "__dict__", {}).get("devices") is devices:
            module.devices = noted

    def allocations(gpu):
        # torch.cuda counts none before Python has asked it for a GPU, and
        # simulated devices take memory of one without that.
        try:
            stats = torch._C._cuda_memoryStats(gpu)
        except RuntimeError:  # nothing has used a GPU
            return 0
        return stats["allocation"]["all"]["allocated"]

    def used():
        # A change of the hardware begins a new memory, whose order is 0.
        memory = simulation.memory
        counts = {"sim": (memory.number, memory.order)}
        for gpu in range(torch.cuda.device_count()):
            counts[gpu] = allocations(gpu)
        changed = {k for k, n in counts.items() if n != seen.get(k)}
        seen.update(counts)
        if "sim" in changed and 0 not in given:
            changed.discard(0)
        given.clear()
        return sorted(changed - {"sim"})

    used()
    return lambda: print(json.dumps(used()))

_gpus_used = _watch_gpus()
del _watch_gpus
"""


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: Any) -> Iterator[None]:
    """Note which GPUs a cell has used."""
    kernel = getattr(item.parent, "kernel", None)
    if kernel is None:
        yield
        return
    if not hasattr(item.parent, "watches_gpus"):
        item.parent.watches_gpus = True
        run(kernel, PROBE)
    yield
    found = json.loads(run(kernel, "_gpus_used()") or "[]")
    item.user_properties.append(("gpus used", found))


def run(kernel: Any, code: str) -> str:
    """Run code in the kernel of a notebook; return what it prints."""
    request = kernel.execute_cell_input(code, allow_stdin=False)
    printed = ""
    while True:
        message = kernel.get_message("iopub", timeout=SECONDS)
        if message["parent_header"].get("msg_id") != request:
            continue
        content = message["content"]
        if message["msg_type"] == "stream":
            printed += content["text"]
        if content.get("execution_state") == "idle":
            return printed


def table(reports: list[Any]) -> list[str]:
    """Return the lines of the table, a row for each chapter.

    Args:
        reports: Those of cells that have run, in any order.
    """
    rows: dict[str, list[set[int]]] = {}
    for report in reports:
        for name, gpus in report.user_properties:
            if name == "gpus used":
                chapter = report.nodeid.split("::")[0].rsplit("/", 1)[-1]
                rows.setdefault(chapter, []).append(set(gpus))
    lines = ["cells  on GPUs  GPUs  chapter"] if rows else []
    for chapter, cells in sorted(rows.items()):
        on_gpus = sum(map(bool, cells))
        gpus = len(set().union(*cells))
        name = chapter.removesuffix(".ipynb")
        lines.append(f"{len(cells):5}  {on_gpus:7}  {gpus:4}  {name}")
    return lines


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the table."""
    reports = [
        report
        for found in terminalreporter.stats.values()
        for report in found
        if getattr(report, "when", "") == "call"
    ]
    if lines := table(reports):
        terminalreporter.section("what has run on GPUs")
        for line in lines:
            terminalreporter.line(line)
