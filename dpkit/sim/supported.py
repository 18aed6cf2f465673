"""The versions of torch that simulated devices were tried on.

The API that carries them is experimental, and private names of torch are
used. On a newer torch the probes of ``patches`` decide.
"""

import re
import warnings

TRIED = ((2, 11), (2, 13), (2, 15))  # all tests of dpkit.sim were run on these


def check_torch_version(version: str) -> None:
    """Refuse a torch that is too old; warn about one that is new.

    Raises:
        RuntimeError: ``version`` is older than those that were tried.

    Example:
        >>> from dpkit.sim.supported import check_torch_version
        >>> check_torch_version("2.13.0+cpu")
    """
    major, minor = (int(n) for n in re.findall(r"\d+", version)[:2])
    tried = ", ".join(f"{a}.{b}" for a, b in TRIED)
    if (major, minor) < TRIED[0]:
        raise RuntimeError(
            "this torch is older than those that simulated devices were "
            f"tried on (torch: {version}, tried: {tried}); install a newer "
            'one, or ask for devices(kind="cpu")'
        )
    if (major, minor) > TRIED[-1]:
        warnings.warn(
            "this torch is newer than those that simulated devices were "
            f"tried on (torch: {version}, tried: {tried}); what they "
            "need of it is looked for",
            stacklevel=2,
        )
