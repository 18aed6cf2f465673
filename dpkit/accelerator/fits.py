"""Whether a driver and a GPU fit a build of torch, and if not, why.

The standard library alone, and no import of dpkit: ``make setup`` asks
before there is a torch (``scripts/environment/gpu_fits.py``).
"""

import re
from dataclasses import dataclass

#: The oldest driver for programs of each major version of CUDA.
#: Source: NVIDIA, *CUDA Compatibility*, "Minor Version Compatibility", table 1
OLDEST_DRIVER = {11: 450, 12: 525, 13: 580}

# sm_86 is machine code; compute_86 is what a driver makes such code of.
ARCHITECTURE = re.compile(r"(sm|compute)_(\d+)(\d)(a?)")


@dataclass(frozen=True)
class Build:
    """What a torch was built for."""

    torch: str  #: "2.15.0+cu132"
    cuda: str  #: "13.2"
    architectures: tuple[str, ...]  #: ("sm_75", "sm_80", …)

    @property
    def major(self) -> int:
        """The major version of its CUDA."""
        return int(self.cuda.partition(".")[0])

    @property
    def capabilities(self) -> str:
        """The compute capabilities that it has kernels for, in words."""
        found = map(ARCHITECTURE.match, self.architectures)
        return ", ".join(f"{m[2]}.{m[3]}" for m in found if m)


def driver_too_old(driver: str, build: Build) -> str:
    """Return why this driver cannot serve this torch; "" if it can.

    Example:
        >>> build = Build("2.15.0+cu132", "13.2", ("sm_75", "sm_80"))
        >>> driver_too_old("580.65.06", build)
        ''
        >>> driver_too_old("535.104.05", build).partition(";")[0]
        'driver 535.104.05 is too old for torch 2.15.0+cu132 (CUDA 13.2 needs driver 580 or newer)'
    """  # noqa: E501
    oldest = OLDEST_DRIVER.get(build.major, 0)
    if int(driver.partition(".")[0]) >= oldest:
        return ""
    return too_old(driver, build)


def too_old(driver: str, build: Build) -> str:
    """Return in words that this driver is too old for this torch."""
    oldest = OLDEST_DRIVER.get(build.major)
    needed = f"driver {oldest} or newer" if oldest else "a newer driver"
    return (
        f"driver {driver} is too old for torch {build.torch} (CUDA "
        f"{build.cuda} needs {needed}); update it, or use a torch for an "
        "older CUDA"
    )


def no_kernels(name: str, capability: tuple[int, int], build: Build) -> str:
    """Return why this torch has no kernels for a GPU; "" if it has some.

    Args:
        name: What to call the GPU.
        capability: Its compute capability: (7, 0) for a V100.
        build: The torch.

    Example:
        >>> build = Build("2.15.0+cu132", "13.2", ("sm_75", "sm_80"))
        >>> no_kernels("A10", (8, 6), build)
        ''
        >>> no_kernels("V100", (7, 0), build).partition(";")[0]
        'torch 2.15.0+cu132 has no kernels for V100 (compute capability: 7.0, it has: 7.5, 8.0)'
    """  # noqa: E501
    if any(_runs_on(capability, name) for name in build.architectures):
        return ""
    if not build.capabilities:  # it does not tell
        return ""
    major, minor = capability
    return (
        f"torch {build.torch} has no kernels for {name} (compute capability: "
        f"{major}.{minor}, it has: {build.capabilities}); use a torch that "
        "has them"
    )


def _runs_on(capability: tuple[int, int], architecture: str) -> bool:
    """Return whether code for an architecture runs on a GPU.

    sm_80 runs on 8.0 and 8.6, not on 9.0; sm_90a on 9.0 alone. What is made
    by the driver, as of compute_90, runs on 9.0 and all that came later.
    """
    match = ARCHITECTURE.match(architecture)
    if not match:
        return False
    kind = match[1]
    exact = match[4]
    built = int(match[2]), int(match[3])
    if exact:
        return built == capability
    if kind == "compute":
        return built <= capability
    return built[0] == capability[0] and built[1] <= capability[1]
