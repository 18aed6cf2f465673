"""Checks of arguments that several public functions share."""

from collections.abc import Iterable, Sequence
from itertools import chain, combinations

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from dpkit.units import check_whole

Devices = Sequence[torch.device]  # devices[rank]


def device_list(
    devices: Iterable[torch.device | str], least: int = 0
) -> list[torch.device]:
    """Return devices as a list.

    Args:
        devices: The devices or their names, in any iterable.
        least: 1 to refuse a list without devices.

    Raises:
        TypeError: it is one device, or no iterable; or something in it is no
            device.
        ValueError: there are fewer devices than ``least``.
    """
    one = isinstance(devices, str | torch.device)
    if one or not isinstance(devices, Iterable):
        raise TypeError(
            f"not a list of devices (devices: {devices!r}); one device is a "
            "list of one"
        )
    found = [given_device(f"devices[{r}]", d) for r, d in enumerate(devices)]
    if len(found) < least:
        raise ValueError(f"no devices to work on (devices: {len(found)})")
    return found


def given_device(name: str, given: object) -> torch.device:
    """Return a device, given as one, by its name or by its number.

    ``name`` is the argument that it is, for the error.

    Raises:
        TypeError: it is none of them.
    """
    try:
        device: torch.device = torch.device(given)  # type: ignore[call-overload]
    except (TypeError, RuntimeError):
        raise TypeError(
            f"not a device ({name}: {given!r}); dpkit.devices() gives those "
            "that are there"
        ) from None
    return device


def tensor_list(tensors: Iterable[Tensor], least: int = 0) -> list[Tensor]:
    """Return tensors as a list.

    Args:
        tensors: The tensors, in any iterable.
        least: 1 to refuse a list without tensors.

    Raises:
        TypeError: it is one tensor, or something in it is no tensor.
        ValueError: there are fewer tensors than ``least``.
    """
    found = _listed(tensors)
    if len(found) < least:
        raise ValueError(f"no tensors to communicate (tensors: {len(found)})")
    for x in found:
        check_tensor(x)
    return found


def one_per_device(
    tensors: Iterable[Tensor], num_devices: int
) -> list[Tensor]:
    """Return tensors as a list, of which each device has one.

    What is in the list is not looked at.

    Raises:
        TypeError: it is one tensor, or no list.
        ValueError: there are more or fewer than devices.
    """
    found = _listed(tensors)
    if len(found) != num_devices:
        raise ValueError(
            f"each device needs one tensor (tensors: {len(found)}, devices: "
            f"{num_devices})"
        )
    return found


def _listed(tensors: Iterable[Tensor]) -> list[Tensor]:
    """Return what is in an iterable, which is not one tensor."""
    if isinstance(tensors, Tensor):
        raise TypeError(
            "a tensor where a list of tensors belongs (shape: "
            f"{tuple(tensors.shape)}); one tensor is a list of one"
        )
    if not isinstance(tensors, Iterable):
        raise TypeError(
            f"not a list of tensors (type: {type(tensors).__name__})"
        )
    return list(tensors)


def check_tensor(x: Tensor) -> None:
    """Raise TypeError for what is not a tensor."""
    if not isinstance(x, Tensor):
        raise TypeError(f"not a tensor (type: {type(x).__name__})")


def layout_of(x: Tensor) -> str:
    """Return what a tensor is that is not dense; "" if it is dense.

    That is "nested", "quantized", or a layout such as "sparse_coo".
    """
    if x.is_nested:
        return "nested"
    if x.is_quantized:
        return "quantized"
    if x.layout is torch.strided:
        return ""
    return str(x.layout).removeprefix("torch.").removeprefix("_")


def check_strided(x: Tensor, operation: str = "") -> None:
    """Raise NotImplementedError for a tensor that is not dense.

    Args:
        x: What is to be sent.
        operation: What sends it, such as "allreduce", for the message.
    """
    if layout := layout_of(x):
        called = f"operation: {operation}, " if operation else ""
        raise NotImplementedError(
            f"a collective sends dense tensors alone ({called}kind of tensor: "
            f"{layout}); send a dense one, or its parts"
        )


def check_kind(name: str, value: object, kind: type) -> None:
    """Raise TypeError unless a value is one of a kind, such as nn.Linear."""
    if not isinstance(value, kind):
        found = type(value).__name__
        if isinstance(value, type):
            found = f"the class {value.__name__}, which has to be called"
        raise TypeError(f"not of the kind {kind.__name__} ({name}: {found})")


def check_shaped(name: str, module: object) -> None:
    """Raise an error unless a value is a module whose tensors have shapes.

    A lazy layer's have none until it has seen a batch.
    """
    check_kind(name, module, nn.Module)
    assert isinstance(module, nn.Module)
    held = chain(module.named_parameters(), module.named_buffers())
    for tensor_name, tensor in held:
        if is_lazy(tensor):
            raise ValueError(
                "a lazy layer has no shapes yet "
                f"({name}: {type(module).__name__}, parameter: {tensor_name})"
                "; run the module once on some rows before, which makes them"
            )


def check_group(group: object) -> None:
    """Raise TypeError unless a group is one of ranks, or None: all ranks."""
    if not (group is None or isinstance(group, dist.ProcessGroup)):
        raise TypeError(
            f"not a group of ranks (group: {group!r}); dist.new_group and "
            "mesh.get_group give some"
        )


def check_function(name: str, value: object) -> None:
    """Raise TypeError unless a value can be called."""
    if not callable(value):
        raise TypeError(f"not a function ({name}: {type(value).__name__})")


def trainable_list(params: Iterable[Tensor]) -> list[Tensor]:
    """Return parameters as a list.

    Raises:
        TypeError: it is one tensor, or something in it is no tensor.
        ValueError: a dtype can have no gradient.
    """
    found = tensor_list(params)
    for i, p in enumerate(found):
        if not (p.is_floating_point() or p.is_complex()):
            raise ValueError(
                "a parameter needs a dtype that has gradients (params"
                f"[{i}]: {p.dtype}); p.float() makes one of it"
            )
    return found


def check_dim(x: Tensor, dim: int) -> None:
    """Raise an error unless a tensor has a dimension of this number."""
    check_tensor(x)
    check_whole("dim", dim)
    if not -x.dim() <= dim < x.dim():
        raise ValueError(
            f"the tensor has no such dimension (dim: {dim}, shape: "
            f"{tuple(x.shape)})"
        )


def check_shards(shards: Sequence[Tensor]) -> None:
    """Raise an error unless tensors can be joined, row by row."""
    for rank, shard in enumerate(shards):
        check_rows(shard)
        first = shards[0]
        alike = shard.shape[1:] == first.shape[1:]
        if not alike or shard.dtype != first.dtype:
            raise ValueError(
                "the rows of all shards need one shape and dtype (shard 0: "
                f"{tuple(first.shape)} {first.dtype}, shard {rank}: "
                f"{tuple(shard.shape)} {shard.dtype})"
            )


def check_rows(x: Tensor) -> None:
    """Raise an error unless a tensor has rows."""
    check_tensor(x)
    if x.dim() == 0:
        raise ValueError(
            f"a tensor without dimensions has no rows to split (x: {x})"
        )


def check_labels_of(X: Tensor, y: Tensor) -> None:
    """Raise an error unless there is a row of labels for each example."""
    check_rows(X)
    check_rows(y)
    if len(X) != len(y):
        raise ValueError(
            f"the batch needs one label per example (examples: {len(X)}, "
            f"labels: {len(y)})"
        )


def check_lists(device_params: Sequence[object], devices: Devices) -> None:
    """Raise an error unless there is one list of parameters per device."""
    if isinstance(device_params, Tensor) or not hasattr(
        device_params, "__len__"
    ):
        raise TypeError(
            "not a list of lists of parameters (type: "
            f"{type(device_params).__name__}); replicate() makes it"
        )
    if len(device_params) != len(devices):
        raise ValueError(
            "each device needs a list of parameters (lists: "
            f"{len(device_params)}, devices: {len(devices)}); replicate() "
            "makes them"
        )


def check_scores(scores: Tensor, y: Tensor) -> None:
    """Raise an error unless each row of scores has a label, a whole number."""
    check_tensor(scores)
    if scores.dim() != 2 or y.shape != scores.shape[:1]:
        raise ValueError(
            "scores and labels need the shapes (rows, classes) and (rows,) "
            f"(scores: {tuple(scores.shape)}, labels: {tuple(y.shape)})"
        )
    if y.is_floating_point() or y.is_complex():
        raise ValueError(
            f"labels are numbers of classes (dtype of the labels: {y.dtype})"
            "; y.long() makes whole numbers of them"
        )


def check_trained(module: nn.Module) -> None:
    """Raise an error unless a parameter of a module requires a gradient."""
    check_kind("module", module, nn.Module)
    params = list(module.parameters())
    if not any(p.requires_grad for p in params):
        raise ValueError(
            f"no parameter requires a gradient (parameters: {len(params)})"
        )


def check_tensors(tensors: Sequence[Tensor]) -> None:
    """Raise an error unless tensors can take part in one collective.

    Raises:
        NotImplementedError: one is sparse, nested or quantized.
        TypeError: it is one tensor, or something in it is no tensor.
        ValueError: there are none, shapes or dtypes differ, or an element
            would be changed twice because memory is shared.
    """
    tensors = tensor_list(tensors, least=1)
    for x in tensors:
        check_strided(x)
    check_one_shape(tensors)
    _check_memory(tensors)


def check_one_shape(tensors: Sequence[Tensor]) -> None:
    """Raise ValueError unless tensors of ranks have one shape and dtype."""
    for rank, tensor in enumerate(tensors):
        first = tensors[0]
        if tensor.shape != first.shape or tensor.dtype != first.dtype:
            raise ValueError(
                "the tensors of all ranks need one shape and dtype (rank 0: "
                f"{tuple(first.shape)} {first.dtype}, rank {rank}: "
                f"{tuple(tensor.shape)} {tensor.dtype})"
            )


def _check_memory(tensors: Sequence[Tensor]) -> None:
    """Raise ValueError if an element would be changed twice."""
    for rank, tensor in enumerate(tensors):
        axes = zip(tensor.stride(), tensor.shape)
        if tensor.numel() and any(s == 0 and n > 1 for s, n in axes):
            raise ValueError(
                "elements of a tensor share their memory (rank: "
                f"{rank}, shape: {tuple(tensor.shape)}, strides: "
                f"{tensor.stride()}); clone() it first"
            )
    # A tensor without elements has no memory that another could share.
    ranks = range(len(tensors)) if tensors[0].numel() else ()
    for a, b in combinations(ranks, 2):
        if tensors[a].untyped_storage() == tensors[b].untyped_storage():
            raise ValueError(
                f"two ranks share one storage (ranks: {a} and {b}); "
                "give each a copy of its own, as replicate() does"
            )


def check_root(root: int, world_size: int) -> None:
    """Raise an error unless the root is a rank."""
    check_whole("root", root)
    if not 0 <= root < world_size:
        raise ValueError(
            f"the root is not a rank (root: {root}, ranks: 0 to "
            f"{world_size - 1})"
        )
