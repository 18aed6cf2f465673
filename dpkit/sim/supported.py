"""The versions of torch that simulated devices were tried on.

The API that carries them is experimental, and private names of torch are used.
"""

import re

TRIED = ((2, 11), (2, 13), (2, 15))  # all tests of dpkit.sim were run on these


def check_torch_version(version: str) -> None:
    """Raise RuntimeError if ``version`` is outside the range that was tried.

    Example:
        >>> from dpkit.sim.supported import check_torch_version
        >>> check_torch_version("2.13.0+cpu")
    """
    major, minor = (int(n) for n in re.findall(r"\d+", version)[:2])
    if not TRIED[0] <= (major, minor) <= TRIED[-1]:
        tried = ", ".join(f"{a}.{b}" for a, b in TRIED)
        raise RuntimeError(
            "this version of torch is outside the range that simulated "
            f"devices were tried on (torch: {version}, tried: {tried}); "
            'install one inside it, or ask for devices(kind="cpu")'
        )
