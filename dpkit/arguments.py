"""What is asked of the arguments that many public functions take."""

from __future__ import annotations

from collections.abc import Iterable

import torch


def device_list(devices: Iterable[torch.device]) -> list[torch.device]:
    """Return the devices as a list; refuse what stands for one device.

    Args:
        devices: k devices, or their names.

    Raises:
        TypeError: it is one device or its name, or a number of devices.

    Example:
        >>> from dpkit.arguments import device_list
        >>> device_list("sim:0")
        Traceback (most recent call last):
        TypeError: not a list of devices (devices: 'sim:0'); one device is a \
list of one
    """
    one = isinstance(devices, str | torch.device)
    if one or not isinstance(devices, Iterable):
        raise TypeError(
            f"not a list of devices (devices: {devices!r}); one device is a "
            "list of one"
        )
    return list(devices)
