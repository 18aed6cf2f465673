"""What the check has found in this process, and what the host waited for."""

import ctypes
import sys

from cuda_double.loading import library


def _runtime() -> ctypes.CDLL | None:
    """Give the runtime, if torch has been imported and it is loaded."""
    if "torch" not in sys.modules:
        return None
    runtime = library("runtime.so")
    runtime.cuda_double_num_findings.restype = ctypes.c_long
    runtime.cuda_double_num_host_waits.restype = ctypes.c_long
    runtime.cuda_double_finding.restype = ctypes.c_char_p
    runtime.cuda_double_finding.argtypes = [ctypes.c_long]
    return runtime


def findings(begin: int = 0) -> list[str]:
    """Give what has been found, but for the first ``begin`` findings."""
    runtime = _runtime()
    if runtime is None:
        return []
    count = runtime.cuda_double_num_findings()
    return [
        runtime.cuda_double_finding(index).decode()
        for index in range(begin, count)
    ]


def num_host_waits() -> int:
    """Count how often the host had to wait for work of a device."""
    runtime = _runtime()
    return runtime.cuda_double_num_host_waits() if runtime else 0
