"""Put tensors on devices: pieces of a batch, copies of the parameters.

A batch of 7 rows on 3 devices::

    rows     0 1 2 | 3 4 | 5 6
    device     0       1     2        the first 7 % 3 shards have one more
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from dpkit.arguments import (
    Devices,
    check_labels_of,
    check_rows,
    check_shards,
    device_list,
    given_device,
    tensor_list,
    trainable_list,
)
from dpkit.streams import receive


def scatter(x: Tensor, devices: Devices) -> list[Tensor]:
    """Cut ``x`` into one shard of rows per device and copy each there.

    The rows keep their order. Where there are fewer rows than devices, the
    last shards are empty. No shard shares storage with ``x``. From pinned
    memory they are copied while the devices compute, as by
    ``dpkit.streams.receive``.

    Shard ``r``, of shape (rows of ``r``, …), lies on ``devices[r]``.

    Raises:
        ValueError: ``x`` has no dimensions, or there are no devices.

    Example:
        >>> x = torch.arange(21).reshape(7, 3)
        >>> shards = dpkit.scatter(x, dpkit.devices(3, kind="sim"))
        >>> [tuple(shard.shape) for shard in shards]
        [(3, 3), (2, 3), (2, 3)]
    """
    devices = device_list(devices, least=1)
    check_rows(x)
    # 7 rows on 3 devices: 3, 2 and 2. 2 rows on 3 devices: 1, 1 and 0.
    shards = torch.tensor_split(x, len(devices))
    return [
        receive(shard, device)
        for shard, device in zip(shards, devices, strict=True)
    ]


def gather(shards: Sequence[Tensor], device: torch.device | str) -> Tensor:
    """Join shards in order of rank into one tensor on ``device``.

    The shards, of shapes (rows of ``r``, …), may lie on any devices.

    Raises:
        ValueError: there are no shards, or their rows differ in shape or
            dtype.

    Example:
        >>> devices = dpkit.devices(2, kind="sim")
        >>> shards = dpkit.scatter(torch.arange(5), devices)
        >>> dpkit.gather(shards, devices[1])
        tensor([0, 1, 2, 3, 4], device='sim:1')
    """
    shards = tensor_list(shards)
    if len(shards) == 0:
        raise ValueError("no shards to gather (shards: 0)")
    check_shards(shards)
    device = given_device("device", device)
    return torch.cat([shard.to(device) for shard in shards])


def split_batch(
    X: Tensor, y: Tensor, devices: Devices
) -> tuple[list[Tensor], list[Tensor]]:
    """Cut examples and labels alike into one shard per device.

    ``X`` and ``y`` have the shapes (b, …). Return the k shards of each, as by
    :func:`scatter`.

    Raises:
        ValueError: ``X`` and ``y`` differ in length, or have no dimensions.

    Example:
        >>> X, y = torch.zeros(5, 2), torch.arange(5)
        >>> X_shards, y_shards = dpkit.split_batch(
        ...     X, y, dpkit.devices(2, kind="sim")
        ... )
        >>> [tuple(shard.shape) for shard in X_shards], y_shards[1].tolist()
        ([(3, 2), (2, 2)], [3, 4])
    """
    devices = device_list(devices, least=1)
    check_labels_of(X, y)
    return scatter(X, devices), scatter(y, devices)


def replicate(
    params: Iterable[Tensor], devices: Devices
) -> list[list[Tensor]]:
    """Copy parameters to every device, ready to collect gradients.

    Each copy is a leaf that requires gradients, and no two share storage, not
    even on one device.

    Return a list for each device: ``replicas[r][i]`` is on ``devices[r]``.

    Example:
        >>> params = [torch.ones(2, 3), torch.zeros(3)]
        >>> replicas = dpkit.replicate(params, dpkit.devices(4, kind="sim"))
        >>> replicas[3][1]
        tensor([0., 0., 0.], device='sim:3', requires_grad=True)
    """
    devices = device_list(devices, least=1)
    params = trainable_list(params)
    return [
        [p.detach().to(device, copy=True).requires_grad_() for p in params]
        for device in devices
    ]
