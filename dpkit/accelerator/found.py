"""The GPUs of this machine, and why torch cannot use some of them."""

import os
from pathlib import Path

import torch

from dpkit.accelerator.driver import DriverAnswer, Gpu, ask_driver
from dpkit.accelerator.fits import Build, no_kernels, too_old
from dpkit.accelerator.kernels import architectures

# Files that a driver of NVIDIA's makes, also in a container.
FILES_OF_DRIVER = (
    "/proc/driver/nvidia",
    "/dev/nvidiactl",
    "/dev/nvhost-ctrl",  # Jetson
    "/usr/lib/wsl/lib/libcuda.so.1",  # Windows
)


def real_devices() -> list[torch.device]:
    """Return the GPUs that torch can use here, in order; none without one.

    Asking starts no GPU in this process, so it can still be forked: another
    one asks the driver, once. (For a MIG slice torch starts it here.)
    """
    return [device for device, reason in _reasons().items() if not reason]


def why_unusable() -> str:
    """Return why torch cannot use GPUs that are here; "" if it can use all.

    Also "" where there is neither a GPU nor a driver.
    """
    reasons = dict.fromkeys(filter(None, _reasons().values()))
    if reasons or real_devices() or not _has_driver():
        return "; ".join(reasons)
    if not torch.version.cuda:
        return f"torch {torch.__version__} was built without CUDA"
    if os.environ.get("CUDA_VISIBLE_DEVICES") is not None:
        hidden = os.environ["CUDA_VISIBLE_DEVICES"]
        return f"none is visible (CUDA_VISIBLE_DEVICES: {hidden!r})"
    return _ask().error or "the driver has no GPU"


def _reasons() -> dict[torch.device, str]:
    """Return for each GPU why torch cannot use it; "" if it can."""
    count = torch.cuda.device_count()
    devices = [torch.device("cuda", index) for index in range(count)]
    if not devices or not torch.version.cuda:  # none, or GPUs of AMD's
        return dict.fromkeys(devices, "")
    # This is a count of GPUs, made without their driver: torch may refuse
    # the driver, or have no kernels for them.
    build = _build()
    if torch.cuda.is_initialized():
        gpus = [_of_torch(device) for device in devices]
    else:
        answer = _ask()
        reason = _refusal(answer, build)
        if reason:
            return dict.fromkeys(devices, reason)
        gpus = answer.gpus
    return {
        torch.device("cuda", index): no_kernels(
            f"cuda:{index} {gpu.name}", gpu.capability, build
        )
        for index, gpu in enumerate(gpus)
    }


def _refusal(answer: DriverAnswer, build: Build) -> str:
    """Return why torch refuses a driver; "" if it takes it."""
    if answer.cuda and answer.cuda // 1000 < build.major:
        return too_old(answer.version, build)
    return answer.error


def _build() -> Build:
    """Return what this torch was built for."""
    return Build(torch.__version__, torch.version.cuda or "", architectures())


def _of_torch(device: torch.device) -> Gpu:
    """Return what torch tells of a GPU, once it has started CUDA."""
    return Gpu(
        torch.cuda.get_device_name(device),
        torch.cuda.get_device_capability(device),
    )


def _ask() -> DriverAnswer:
    """Return what the driver says of the GPUs that are visible now."""
    get = os.environ.get
    return ask_driver(get("CUDA_VISIBLE_DEVICES"), get("CUDA_DEVICE_ORDER"))


def _has_driver() -> bool:
    """Return whether there are signs of a driver of NVIDIA's.

    Its library is one, even if the driver has made no files.
    """
    has_files = any(Path(name).exists() for name in FILES_OF_DRIVER)
    return has_files or _ask().is_there
