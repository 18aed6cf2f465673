"""What is known of an operation before it runs.

The rules of devices are those of CUDA. Tensors of two devices do not mix,
except:

- a CPU tensor without dimensions serves as a number, but is not written to,
  joined with others, or taken for an index;
- indices and masks may lie on the CPU;
- a copy reads one device and writes another;
- a list operation (``_foreach_…``) needs one device per position in the list.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._ops import OpOverload

from dpkit.sim.configuration import simulation
from dpkit.sim.device_names import device_count, full_device
from dpkit.sim.memory import tensors_in
from dpkit.sim.sending import NAMESPACE
from dpkit.sim.small_integers import (
    MOST_INTEGERS,
    has_numbers,
    is_small_integer,
)

# They ask for a tensor's form alone, or give it other memory.
UNREAD = set(
    "empty_like full_like ones_like rand_like randint_like randn_like "
    "zeros_like new_empty new_empty_strided new_full new_ones new_zeros "
    "record_stream resize_ set_".split()
)
# What they write to is not read.
OVERWRITING = {"copy_", "fill_", "zero_", "_foreach_copy_", "_foreach_zero_"}
# They make or rename memory, and launch nothing.
NO_KERNEL = set(
    "_unsafe_view alias detach empty empty_like empty_permuted empty_strided "
    "lift_fresh new_empty new_empty_strided resize_ set_".split()
)

# Their schemas do not say that they write to the running mean and variance,
# in these places, if argument 5 is true: training, or how fast these move.
RUNNING = {
    "native_batch_norm": (3, 4),
    "batch_norm_gather_stats_with_counts": (3, 4),
}

aten = torch.ops.aten
Args = tuple[Any, ...]
Kwargs = dict[str, Any]


class OpCall(NamedTuple):
    """An operation, such as ``aten.add.Tensor``, and what it is given."""

    func: OpOverload
    args: Args
    kwargs: Kwargs


# These read one device and write another.
COPIES = {
    aten.copy_.default,
    aten._copy_from.default,
    aten._to_copy.default,
    aten._foreach_copy_.default,
    aten._foreach_copy.default,
}

# Operation -> the position of the argument that may stay on the CPU.
CPU_ARGUMENTS = dict.fromkeys(
    "_index_put_impl_ _pack_padded_sequence _pad_packed_sequence "
    "_unsafe_index _unsafe_index_put index index_put index_put_".split(),
    1,
) | dict.fromkeys(
    "_foreach_addcdiv _foreach_addcdiv_ _foreach_addcmul "
    "_foreach_addcmul_".split(),
    3,
)
# Operations that take no CPU tensor for a number.
NO_CPU_NUMBERS = set(
    "cat embedding gather index_select nll_loss_forward scatter scatter_add "
    "stack take".split()
)

INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_"}
MASKS = (torch.bool, torch.uint8)


def check_mixture(call: OpCall, inputs: list[Tensor]) -> torch.device | None:
    """Return the device of the result; refuse tensors that do not mix."""
    # operation     inputs                          result
    # add           sim:1, sim:1                    sim:1
    # add           sim:1, a number on the CPU      sim:1
    # add           sim:1, sim:0                    refused
    # index         sim:1, [indices on the CPU]     sim:1
    # copy_         sim:1, sim:0                    sim:1, the one written to
    # _to_copy      sim:1; device="cpu"             the CPU
    # _foreach_add  [sim:0, sim:1], [sim:0, sim:1]  None
    device = inputs[0].device
    for x in inputs[1:]:
        if x.device != device:
            is_list = base_name(call.func).startswith("_foreach")
            if is_list and len(call.args[0]) > 1:
                return None
            device = _common_device(call)
            break
    if device.type == "sim" and device.index >= device_count():
        full_device(device)  # refuses it
    check_home(inputs)
    if simulation.backing.type == "meta":
        check_readable(call)
    if simulation.memory.freed:
        check_there(call.func, inputs)
    target = call.kwargs.get("device")
    return device if target is None else full_device(target)


def check_there(func: OpOverload, inputs: list[Tensor]) -> None:
    """Refuse to read or write what was freed; its views may be made."""
    # weight.untyped_storage().resize_(0): the CPU would read what is not its
    # own, and end the process.
    name = base_name(func)
    if alias_kind(func)[0] == "view" or name in UNREAD:
        return
    for x in inputs:
        if x.numel() and not x.untyped_storage().nbytes():
            raise RuntimeError(
                "the memory of this tensor was freed; it has to be gathered "
                f"first (operation: {name}, shape: {tuple(x.shape)}, device: "
                f"{x.device})"
            )


def check_home(tensors: list[Tensor]) -> None:
    """Refuse tensors of a machine with numbers on one without; and back."""
    meta = simulation.backing.type == "meta"
    for x in tensors:
        backing = getattr(x, "backing", None)
        if backing is not None and backing.is_meta is not meta:
            raise RuntimeError(
                "a tensor of another simulated machine is of no use on this "
                f"one (device: {x.device}, backing: {simulation.backing})"
            )


def _common_device(call: OpCall) -> torch.device:
    """Return the device that ``call`` runs on, given tensors of several."""
    func, args, kwargs = call
    if func in COPIES:
        return tensors_in(args[0])[0].device
    place = CPU_ARGUMENTS.get(base_name(func))
    indices = tensors_in([a for i, a in enumerate(args) if i == place])
    strict = [a for i, a in enumerate(args) if i != place]
    operands = tensors_in([strict, kwargs])
    numbers = [t for t in operands if is_cpu_number(t)]
    if base_name(func) in NO_CPU_NUMBERS:
        numbers = []
    device = next(
        (t.device for t in operands if not is_cpu_number(t)),
        operands[0].device,
    )
    on_cpu = {id(t) for t in indices + numbers if t.device.type == "cpu"}
    on_cpu -= {id(t) for t in written(call)}
    for tensor in operands + indices:
        if tensor.device != device and id(tensor) not in on_cpu:
            raise RuntimeError(mixture(device, tensor.device))
    return device


def mixture(first: torch.device, second: torch.device) -> str:
    """Return the words in which torch refuses two devices."""
    return (
        "Expected all tensors to be on the same device, but found at least "
        f"two devices, {first} and {second}!"
    )


def is_cpu_number(tensor: Tensor) -> bool:
    """Return whether ``tensor`` lies on the CPU and has no dimensions."""
    return tensor.device.type == "cpu" and tensor.dim() == 0


def written(call: OpCall) -> list[Tensor]:
    """Return the tensors that ``call`` writes to."""
    places = written_places(call.func)
    if base_name(call.func) in RUNNING and arguments(call, [5])[0]:
        places = [*places, *RUNNING[base_name(call.func)]]
    return tensors_in(arguments(call, places))


@cache
def written_places(func: OpOverload) -> list[int]:
    """Return the positions of what the schema of ``func`` says it writes."""
    schema = func._schema.arguments
    return [i for i, argument in enumerate(schema) if argument.is_write]


@cache
def base_name(func: OpOverload) -> str:
    """Return the name without "aten::" and overload: "add_", "mm"."""
    return str(func._schema.name).partition("::")[2]


@cache
def alias_kind(func: OpOverload) -> tuple[str, tuple[int, ...]]:
    """Return what ``func`` returns: something "new", a "view", or "written".

    With the last come the positions of the arguments that it writes to::

        add(a, b)          -> Tensor      "new", ()
        t(Tensor(a) a)     -> Tensor(a)   "view", ()
        add_(Tensor(a!) a) -> Tensor(a!)  "written", (0,)
    """
    schema = func._schema
    infos = [r.alias_info for r in schema.returns]
    if func._overloadname.endswith("out") and not infos:
        outs = [i for i, a in enumerate(schema.arguments) if a.is_out]
        return "written", tuple(outs)
    if not any(infos):
        return "new", ()
    if not all(info and info.is_write for info in infos):
        return "view", ()
    places = {
        frozenset(a.alias_info.before_set): i
        for i, a in enumerate(schema.arguments)
        if a.alias_info is not None
    }
    return "written", tuple(
        places[frozenset(info.before_set)] for info in infos if info
    )


@cache
def launches_kernel(func: OpOverload) -> bool:
    """Return whether the device has something to do."""
    return alias_kind(func)[0] != "view" and base_name(func) not in NO_KERNEL


def read_by(call: OpCall) -> list[Tensor]:
    """Return the tensors whose numbers ``call`` reads."""
    return tensors_in(arguments(call, _read_places(call.func)))


@cache
def _read_places(func: OpOverload) -> list[int]:
    # zeros_like asks for a form alone, in place 0; copy_ and what has an
    # argument "out" overwrite.
    schema = func._schema.arguments
    unread = {i for i, argument in enumerate(schema) if argument.is_out}
    if base_name(func) in OVERWRITING:
        unread |= set(written_places(func))
    elif base_name(func) in UNREAD and alias_kind(func)[0] == "new":
        unread.add(0)
    return [i for i in range(len(schema)) if i not in unread]


def by_position(call: OpCall) -> list[OpCall]:
    """Return a list operation as one for each position in the lists."""
    # _foreach_add([a, b], [c, d]) -> _foreach_add([a], [c]), then [b], [d]
    length = next(len(a) for a in call.args if isinstance(a, list))
    columns = []
    for i in range(length):
        args = [[a[i]] if isinstance(a, list) else a for a in call.args]
        columns.append(call._replace(args=tuple(args)))
    return columns


def arguments(call: OpCall, positions: Sequence[int]) -> list[Any]:
    """Return the arguments in these positions of the schema."""
    args, kwargs = call.args, call.kwargs
    names = [a.name for a in call.func._schema.arguments]
    return [
        args[i] if i < len(args) else kwargs.get(names[i]) for i in positions
    ]


@cache
def is_composed(func: OpOverload) -> bool:
    """Return whether ``func`` is run as several other operations."""
    # Autograd has done so before an operation comes here, except inside
    # another dispatch and in inference mode.
    name = func.name()
    if has_stand_in(func) or own_key(func):
        return True
    composed = has_kernel(name, "CompositeImplicitAutograd")
    return composed and not has_kernel(name, "CPU")


@cache
def own_key(func: OpOverload) -> torch._C.DispatchKey | None:
    """Return the key of a kernel that takes simulated tensors as they are.

    Operations that are not PyTorch's basic ones may have one, such as those
    of FSDP.
    """
    keys = "PrivateUse1", "CompositeExplicitAutograd"
    found = [key for key in keys if has_kernel(func.name(), key)]
    if func.namespace == "aten" or not found:
        return None
    key: torch._C.DispatchKey = getattr(torch._C.DispatchKey, found[0])
    return key


@cache
def has_stand_in(func: OpOverload) -> bool:
    """Return whether our kernel stands in for ``func``."""
    ours = func.namespace in ("aten", NAMESPACE)
    return ours and has_kernel(func.name(), "AutogradPrivateUse1")


def has_kernel(name: str, key: str) -> bool:
    """Return whether torch has a kernel for an operation and dispatch key."""
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return bool(has(name, key))


@cache
def _may_wait(func: OpOverload) -> bool:
    # The values decide the result's shape, or are a number that Python reads.
    tags = torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape
    waits = any(tag in func.tags for tag in tags)
    return waits or base_name(func) in INDEXING


def host_waits(call: OpCall) -> bool:
    """Return whether the host has to wait for what comes out."""
    func, args = call.func, call.args
    if not _may_wait(func):
        return False
    if base_name(func) not in INDEXING:
        return True
    masks = [m for m in args[1] if m is not None and m.dtype in MASKS]
    # x[mask] = 5 fills where the mask is true, without counting them.
    fills = base_name(func) != "index" and args[2].numel() == 1
    return bool(masks) and not fills


def no_numbers(x: Tensor) -> RuntimeError:
    """Return the error for reading what has no numbers under ``"meta"``."""
    where = f"device: {x.device}, backing: 'meta'"
    found = f"there are no numbers to read ({where}, dtype: {x.dtype}"
    if is_small_integer(x):
        return RuntimeError(
            f"{found}): they come from values that this machine does not have;"
            " copy_(torch.tensor([...])) gives this tensor its numbers"
        )
    return RuntimeError(
        f"{found}, elements: {x.numel()}): only integers keep theirs, up to "
        f"{MOST_INTEGERS} in a tensor; torch.sim.synchronize() waits without "
        "reading"
    )


def check_readable(call: OpCall) -> None:
    """Refuse an operation that needs values, where there are none."""
    read: list[Tensor] = []
    if call.func in COPIES and _writes_to_cpu(call):
        read = tensors_in(call.args[1])
    elif host_waits(call):
        read = read_by(call)
        if base_name(call.func) in INDEXING:
            read = [i for i in tensors_in(call.args[1]) if i.dtype in MASKS]
    for x in read:
        if not has_numbers(getattr(x, "backing", x)):
            raise no_numbers(x)


def _writes_to_cpu(call: OpCall) -> bool:
    return any(x.device.type == "cpu" for x in written(call))


def backing_of(device: torch.device) -> torch.device:
    """Return where the numbers of a tensor on ``device`` lie."""
    return simulation.backing if device.type == "sim" else device
