"""What CUDA's driver says of the GPUs, asked by another process.

Only a driver that was started (``cuInit``) tells whether its GPUs can be
used. A process that started it can no longer fork: its children cannot use
CUDA. So another Python starts it, says what it found, and ends.

This file is also that Python's program, which needs neither torch nor dpkit.
It calls the driver as C does: each function returns 0, or the number of an
error.
"""

import ctypes
import json
import subprocess
import sys
from dataclasses import dataclass, field
from functools import cache

CUDA = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
NVML = "nvml.dll" if sys.platform == "win32" else "libnvidia-ml.so.1"
CAPABILITY = 75, 76  # the attributes of a GPU with its major and minor number
# Eight GPUs of a driver that unloads itself take several seconds.
PATIENCE_SECONDS = 120


@dataclass(frozen=True)
class Gpu:
    """A GPU, as its driver tells of it."""

    name: str
    capability: tuple[int, int]


@dataclass(frozen=True)
class DriverAnswer:
    """What the driver says."""

    error: str = ""  #: why it could not be started; "" if it was
    is_there: bool = True  #: whether there is a library of it
    version: str = "of unknown version"  #: of the driver: "580.65.06"
    cuda: int = 0  #: the newest CUDA that it knows: 13020 is 13.2
    gpus: list[Gpu] = field(default_factory=list)


@cache
def ask_driver(visible: str | None, order: str | None) -> DriverAnswer:
    """Return what the driver says to another process.

    Args:
        visible: The environment's ``CUDA_VISIBLE_DEVICES``; None if it is
            not set.
        order: Its ``CUDA_DEVICE_ORDER``; None if it is not set. Both change
            the answer, so the process is started once for each pair.
    """
    command = [sys.executable, "-I", "-S", __file__]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=PATIENCE_SECONDS
        )
    except subprocess.TimeoutExpired:
        return DriverAnswer(
            f"the driver did not answer (seconds: {PATIENCE_SECONDS})"
        )
    except OSError as error:
        return DriverAnswer(f"no process could ask the driver ({error})")
    if done.returncode:
        status = f"status: {done.returncode}"
        return DriverAnswer(
            f"the process that asked the driver failed ({status})"
        )
    facts = json.loads(done.stdout)
    found = facts.pop("gpus")
    gpus = [Gpu(name, (major, minor)) for name, major, minor in found]
    return DriverAnswer(**facts, gpus=gpus)


def started() -> dict[str, object]:
    """Start the driver in this process, and return what it says."""
    facts: dict[str, object] = {"version": _version(), "gpus": []}
    try:
        cuda = ctypes.CDLL(CUDA)
    except OSError as failed:
        if str(failed).startswith(f"{CUDA}: cannot open shared object file"):
            why = f"the driver's library is missing ({CUDA})"
            return facts | {"error": why, "is_there": False}
        why = f"the driver's library cannot be loaded ({failed})"
        return facts | {"error": why}
    number = ctypes.c_int()
    cuda.cuDriverGetVersion(ctypes.byref(number))
    facts["cuda"] = number.value
    error = cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(number))
    if error:
        reason = f"the driver does not start ({_error_name(cuda, error)})"
        return facts | {"error": reason}
    return facts | {"gpus": [_gpu(cuda, i) for i in range(number.value)]}


def _version() -> str:
    """Return the version of the driver, which its NVML tells."""
    text = ctypes.create_string_buffer(96)
    try:
        nvml = ctypes.CDLL(NVML)
        nvml.nvmlInit_v2()
        nvml.nvmlSystemGetDriverVersion(text, len(text))
    except (OSError, AttributeError):
        pass
    return text.value.decode() or DriverAnswer.version


def _gpu(cuda: ctypes.CDLL, index: int) -> tuple[str, int, int]:
    """Return the name of a GPU, and its compute capability."""
    gpu = ctypes.c_int()
    number = ctypes.c_int()
    cuda.cuDeviceGet(ctypes.byref(gpu), index)
    name = ctypes.create_string_buffer(96)
    cuda.cuDeviceGetName(name, len(name), gpu)
    numbers = []
    for attribute in CAPABILITY:
        cuda.cuDeviceGetAttribute(ctypes.byref(number), attribute, gpu)
        numbers.append(number.value)
    major, minor = numbers
    return name.value.decode(), major, minor


def _error_name(cuda: ctypes.CDLL, error: int) -> str:
    """Return the driver's name of an error: CUDA_ERROR_NO_DEVICE."""
    name = ctypes.c_char_p()
    cuda.cuGetErrorName(error, ctypes.byref(name))
    return name.value.decode() if name.value else f"error {error}"


if __name__ == "__main__":
    print(json.dumps(started()))
