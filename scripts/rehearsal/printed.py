"""Compare what cells print on GPUs with their stored outputs.

A plugin of pytest, used with nbval: ``-p rehearsal.printed``. The stored
outputs are those of simulated devices. On GPUs three things differ by right,
and are masked on both sides: the kind of a device (its number is compared),
seconds of the wall clock, and which clock it was. All else that a cell prints
is a claim of the page, which has to hold on GPUs too.

``exempt.toml`` lists the cells for which this is not enough, with the reason::

    [numbers.overlap]        only their numbers may differ
    [all.devices]            they are not compared at all
    [missing.devices]        they are skipped: the double lacks what they need
    "the-id-of-the-cell" = "why"
"""

import os
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

EXEMPT = tomllib.loads(
    (Path(__file__).parent / "exempt.toml").read_text("utf-8")
)
QUOTE = r"(?:'|&#x27;|&#39;)"
MASKS = {
    # sim:1 or cuda:1: where it lies is compared, on which kind is not.
    r"\b(?:cuda|sim):(?=\d)": "DEVICE:",
    rf"\bdevice\(type={QUOTE}(?:cuda|sim){QUOTE}": "device(type=DEVICE",
    # simulated (v100, nvlink2), or measured
    r"\bsimulated \([^)]*\)|\bmeasured\b": "CLOCK",
    r"\d[\d.,]*\s?(?:ns|µs|ms|s|seconds|minutes|hours)\b": "TIME",
}
NUMBER = r"[-−]?\d[\d.,]*(?:e[-+]\d+)?"


def masked(text: str, numbers: bool = False) -> str:
    """Return a text without what differs by right.

    Args:
        text: What a cell has printed.
        numbers: Whether all of its numbers are masked, too.
    """
    masks = MASKS | ({NUMBER: "NUMBER"} if numbers else {})
    for pattern, mask in masks.items():
        text = re.sub(pattern, mask, text)
    # A column is as wide as what stands in it.
    return re.sub(r" {2,}", " ", text)


def unknown(chapters: dict[str, set[str]]) -> Iterator[str]:
    """Yield exempt cells that no chapter has.

    Args:
        chapters: The name of each chapter -> the ids of its cells.
    """
    for tables in EXEMPT.values():
        for name, cells in tables.items():
            for cell in set(cells) - chapters.get(name, set()):
                yield f"{name}: {cell}"


@pytest.hookimpl(trylast=True)  # nbval has started the kernel
def pytest_runtest_setup(item: Any) -> None:
    """Fail where the kernel of a notebook does not see the GPUs.

    Its cells would get simulated devices, and print what is stored.
    """
    if not hasattr(item, "sanitize") or item.cell_num:
        return
    count = os.environ["CUDA_DOUBLE"]
    code = f"import torch; assert torch.cuda.device_count() == {count}"
    if _fails(item.parent.kernel, code):
        pytest.fail(f"the notebook does not see {count} GPUs", pytrace=False)


def _fails(kernel: Any, code: str) -> bool:
    """Run code in the kernel of a notebook; return whether it raised."""
    request = kernel.execute_cell_input(code, allow_stdin=False)
    failed = False
    while True:
        message = kernel.get_message("iopub", timeout=1200)
        if message["parent_header"].get("msg_id") != request:
            continue
        failed |= message["msg_type"] == "error"
        if message["content"].get("execution_state") == "idle":
            return failed


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Give each cell of a notebook its masks."""
    for item in items:
        if not hasattr(item, "sanitize"):
            continue
        chapter = item.path.stem
        cell = item.cell.get("id")
        if cell in EXEMPT["all"].get(chapter, {}):
            item.options["check"] = False
        if reason := EXEMPT["missing"].get(chapter, {}).get(cell):
            item.add_marker(pytest.mark.skip(reason=reason))
        item.sanitize = _sanitizer(cell in EXEMPT["numbers"].get(chapter, {}))


def _sanitizer(numbers: bool) -> Any:
    return lambda found: (
        masked(found, numbers) if isinstance(found, str) else found
    )
