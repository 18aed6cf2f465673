"""Put tensors on devices: pieces of a batch, copies of the parameters.

A batch of 7 rows on 3 devices::

    rows     0 1 2 | 3 4 | 5 6
    device     0       1     2        the first 7 % 3 shards have one more
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from dpkit.arguments import check_labels_of, device_list


def scatter(x: Tensor, devices: Sequence[torch.device]) -> list[Tensor]:
    """Cut ``x`` into one shard of rows per device and copy each there.

    The rows keep their order. Where there are fewer rows than devices, the
    last shards are empty. No shard shares storage with ``x``, not even where
    a device is the one ``x`` lies on.

    Args:
        x: Tensor of shape (rows, …).
        devices: k devices.

    Returns:
        k shards; shard ``r``, of shape (rows of ``r``, …), lies on
        ``devices[r]``.

    Raises:
        TypeError: ``x`` is not a tensor, or ``devices`` no list.
        ValueError: ``x`` has no dimensions, or there are no devices.

    Example:
        >>> x = torch.arange(21).reshape(7, 3)
        >>> shards = dpkit.scatter(x, dpkit.devices(3, kind="sim"))
        >>> [tuple(shard.shape) for shard in shards]
        [(3, 3), (2, 3), (2, 3)]
    """
    devices = _some_devices(devices)
    _check_rows(x)
    # 7 rows on 3 devices: 3, 2 and 2. 2 rows on 3 devices: 1, 1 and 0.
    shards = torch.tensor_split(x, len(devices))
    return [
        shard.to(device, copy=True)
        for shard, device in zip(shards, devices, strict=True)
    ]


def gather(shards: Sequence[Tensor], device: torch.device | str) -> Tensor:
    """Join shards in order of rank into one tensor on ``device``.

    Args:
        shards: Tensors of shapes (rows of ``r``, …), each on its device.
        device: Where the whole is to lie.

    Returns:
        Tensor of shape (sum of the rows, …).

    Raises:
        ValueError: there are no shards.

    Example:
        >>> devices = dpkit.devices(2, kind="sim")
        >>> shards = dpkit.scatter(torch.arange(5), devices)
        >>> dpkit.gather(shards, devices[1])
        tensor([0, 1, 2, 3, 4], device='sim:1')
    """
    if len(shards) == 0:
        raise ValueError("no shards to gather (shards: 0)")
    return torch.cat([shard.to(device) for shard in shards])


def split_batch(
    X: Tensor, y: Tensor, devices: Sequence[torch.device]
) -> tuple[list[Tensor], list[Tensor]]:
    """Cut examples and labels alike into one shard per device.

    Args:
        X: Examples, shape (b, …).
        y: Labels, shape (b, …).
        devices: k devices.

    Returns:
        The k shards of ``X`` and the k shards of ``y``, as by
        :func:`scatter`.

    Raises:
        TypeError, ValueError: as for :func:`scatter`; ``X`` and ``y`` differ
            in length.

    Example:
        >>> X, y = torch.zeros(5, 2), torch.arange(5)
        >>> X_shards, y_shards = dpkit.split_batch(
        ...     X, y, dpkit.devices(2, kind="sim")
        ... )
        >>> [tuple(shard.shape) for shard in X_shards], y_shards[1].tolist()
        ([(3, 2), (2, 2)], [3, 4])
    """
    devices = _some_devices(devices)
    _check_rows(X)
    _check_rows(y)
    check_labels_of(X, y)
    return scatter(X, devices), scatter(y, devices)


def replicate(
    params: Iterable[Tensor], devices: Sequence[torch.device]
) -> list[list[Tensor]]:
    """Copy parameters to every device, ready to collect gradients.

    Each copy is a leaf that requires gradients, and no two share storage,
    not even where two devices are the same one, or where one tensor is listed
    twice.

    Args:
        params: n tensors, of any shapes.
        devices: k devices.

    Returns:
        k lists of n tensors; ``replicas[r][i]`` lies on ``devices[r]``.

    Raises:
        TypeError: ``params`` or ``devices`` is no list.
        ValueError: there are no devices.

    Example:
        >>> params = [torch.ones(2, 3), torch.zeros(3)]
        >>> replicas = dpkit.replicate(params, dpkit.devices(4, kind="sim"))
        >>> replicas[3][1]
        tensor([0., 0., 0.], device='sim:3', requires_grad=True)
    """
    devices = _some_devices(devices)
    params = _tensor_list(params)
    return [
        [p.detach().to(device, copy=True).requires_grad_() for p in params]
        for device in devices
    ]


def _some_devices(devices: Sequence[torch.device]) -> list[torch.device]:
    found = device_list(devices)
    if not found:
        raise ValueError("no devices to place tensors on (devices: 0)")
    return found


def _tensor_list(params: Iterable[Tensor]) -> list[Tensor]:
    if isinstance(params, Tensor):
        raise TypeError(
            "a tensor where a list of tensors belongs (shape: "
            f"{tuple(params.shape)}); one parameter is a list of one"
        )
    found = list(params)
    for p in found:
        _check_tensor(p)
    return found


def _check_tensor(x: Tensor) -> None:
    if not isinstance(x, Tensor):
        raise TypeError(f"not a tensor (type: {type(x).__name__})")


def _check_rows(x: Tensor) -> None:
    _check_tensor(x)
    if x.dim() == 0:
        raise ValueError(
            f"a tensor without dimensions has no rows to split (x: {x})"
        )
