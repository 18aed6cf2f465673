"""An operation, and what is checked before it runs.

The rules of devices are those of CUDA. Tensors of two devices do not mix,
except:

- a CPU tensor without dimensions serves as a number, but is not written to,
  joined with others, or taken for an index;
- indices and masks may lie on the CPU;
- a copy reads one device and writes another;
- a list operation (``_foreach_…``) needs one device per position in the list.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._ops import OpOverload

from dpkit.sim.containers import tensors_in
from dpkit.sim.devices import names as device_names
from dpkit.sim.devices.configuration import simulation
from dpkit.sim.devices.names import device_count, full_device
from dpkit.sim.memory.small_integers import (
    MOST_INTEGERS,
    has_values,
    is_small_integer,
    may_keep,
)

aten = torch.ops.aten
Args = tuple[Any, ...]
Kwargs = dict[str, Any]
MASKS = (torch.bool, torch.uint8)


@dataclass(slots=True, eq=False)
class Operator:
    """What is known of an operator of torch, such as ``aten.add.Tensor``.

    Its arguments are given by their positions in the schema.
    """

    func: OpOverload
    name: str  #: without "aten::" and overload: "add"
    arguments: tuple[str, ...]  #: their names
    kind: str  #: whether its result is "new", a "view", or was "written"
    returned: tuple[int, ...]  #: the arguments that it returns, if written
    reads: tuple[int, ...]  #: the arguments whose values it reads
    writes: tuple[int, ...]  #: the arguments that it writes to
    #: Others that it writes to, if argument 5 is true.
    writes_in_training: tuple[int, ...]
    asks_form: bool  #: whether it reads the form of a tensor alone
    is_list: bool  #: whether it takes lists, with a device for each position
    is_copy: bool  #: whether it reads one device and writes another
    is_indexing: bool  #: whether argument 1 is indices, or masks
    cpu_argument: int | None  #: the argument that may stay on the CPU
    takes_cpu_scalars: bool  #: whether a CPU tensor may serve as a number
    generator: int | None  #: the argument that is a generator, if it takes one
    is_random: bool  #: whether it draws
    #: Whether the values that it reads may decide the shape of the result.
    may_wait: bool
    #: Whether it is run as others are, or reads a number.
    is_composed: bool
    #: The key of a kernel that takes simulated tensors as they are.
    key: torch._C.DispatchKey | None
    run: Callable[..., Any]  #: what computes it on plain tensors
    launches: bool  #: whether the device has something to do
    #: Its bytes: from the call, the tensors in it, and what it writes.
    memory_traffic: Callable[["OpCall", Sequence[Tensor], Any], int]
    #: Its arithmetic, if it has any: from the call, what has come out, and
    #: whether a CPU is simulated.
    flops: Callable[["OpCall", Any, bool], int] | None
    #: The kind of kernel whose rate its arithmetic has; see ``costs``.
    rate: Callable[["OpCall", bool], str] | None
    #: Whether it has a kernel for each gradient that its last argument names.
    per_gradient: bool


class OpCall(NamedTuple):
    """An operator, such as ``aten.add.Tensor``, and what it is given."""

    operator: Operator
    args: Args
    kwargs: Kwargs

    @property
    def func(self) -> OpOverload:
        """The operator as torch has it."""
        return self.operator.func


def base_name(func: OpOverload) -> str:
    """Return the name without "aten::" and overload: "add_", "mm"."""
    return str(func._schema.name).partition("::")[2]


def check_inputs(call: OpCall, inputs: list[Tensor]) -> torch.device | None:
    """Return the device of the result, and check the inputs.

    None: a list operation, whose positions are on several devices.

    Raises:
        RuntimeError: the inputs are on devices that do not mix, or of another
            machine; or one was freed, or has no values where they are read.
    """
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
            if call.operator.is_list and len(call.args[0]) > 1:
                return None
            device = _common_device(call)
            break
    if device.type == "sim" and device.index >= device_count():
        full_device(device)  # refuses it
    check_machine_of(inputs)
    if simulation.backing.type == "meta":
        check_readable(call)
    if simulation.memory.freed:
        check_not_freed(call.operator, inputs)
    target = call.kwargs.get("device")
    return device if target is None else full_device(target)


def check_not_freed(operator: Operator, inputs: list[Tensor]) -> None:
    """Refuse to read or write memory that was freed; views may be made.

    Raises:
        RuntimeError: an input was freed, as FSDP does with its parameters.
    """
    # weight.untyped_storage().resize_(0): the CPU would read what is not its
    # own, and end the process.
    if operator.kind == "view" or operator.asks_form:
        return
    for x in inputs:
        if is_freed(x):
            raise RuntimeError(
                "the memory of this tensor was freed; it has to be gathered "
                f"first (operation: {operator.name}, shape: "
                f"{tuple(x.shape)}, device: {x.device})"
            )


def is_freed(tensor: Tensor) -> bool:
    """Return whether a tensor has numbers, but no memory for them."""
    return bool(tensor.numel()) and not tensor.untyped_storage().nbytes()


def check_machine_of(tensors: list[Tensor]) -> None:
    """Check that tensors belong to a machine like the current one.

    Raises:
        RuntimeError: one has values and the machine has none, or the other way
            round.
    """
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
    operator, args, kwargs = call
    if operator.is_copy:
        return tensors_in(args[0])[0].device
    position = operator.cpu_argument
    indices = tensors_in([a for i, a in enumerate(args) if i == position])
    strict = [a for i, a in enumerate(args) if i != position]
    operands = tensors_in([strict, kwargs])
    scalars = [t for t in operands if is_cpu_scalar(t)]
    if not operator.takes_cpu_scalars:
        scalars = []
    device = next(
        (t.device for t in operands if not is_cpu_scalar(t)),
        operands[0].device,
    )
    on_cpu = {id(t) for t in indices + scalars if t.device.type == "cpu"}
    on_cpu -= {id(t) for t in written(call)}
    for tensor in operands + indices:
        if tensor.device != device and id(tensor) not in on_cpu:
            raise RuntimeError(device_mismatch(device, tensor.device))
    return device


def device_mismatch(first: torch.device, second: torch.device) -> str:
    """Return the text of torch's error for inputs on two devices."""
    shown = device_names.shown
    return (
        "Expected all tensors to be on the same device, but found at least "
        f"two devices, {shown(first)} and {shown(second)}!"
    )


def is_cpu_scalar(tensor: Tensor) -> bool:
    """Return whether ``tensor`` lies on the CPU and has no dimensions."""
    return tensor.device.type == "cpu" and tensor.dim() == 0


def written(call: OpCall) -> list[Tensor]:
    """Return the tensors that ``call`` writes to."""
    places = call.operator.writes
    more = call.operator.writes_in_training
    if more and arguments(call, [5])[0]:
        places += more
    return tensors_in(arguments(call, places)) if places else []


def read_by(call: OpCall) -> list[Tensor]:
    """Return the tensors whose values ``call`` reads."""
    return tensors_in(arguments(call, call.operator.reads))


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
    args = call.args
    kwargs = call.kwargs
    names = call.operator.arguments
    return [
        args[i] if i < len(args) else kwargs.get(names[i]) for i in positions
    ]


def host_waits(call: OpCall) -> bool:
    """Return whether the host has to wait for the result, as for a shape."""
    operator = call.operator
    args = call.args
    if not operator.may_wait:
        return False
    if not operator.is_indexing:
        return True
    masks = [m for m in args[1] if m is not None and m.dtype in MASKS]
    # x[mask] = 5 fills where the mask is true, without counting them.
    fills = operator.name != "index" and args[2].numel() == 1
    return bool(masks) and not fills


NONE_TO_A_VIEW = (
    "no numbers to a view, which this is: write to all of the tensor that it "
    "is a part of, or to a clone() of it"
)


def no_values(x: Tensor) -> RuntimeError:
    """Return the error for reading what has no values under ``"meta"``."""
    where = f"device: {x.device}, backing: 'meta'"
    found = f"there are no numbers to read ({where}, dtype: {x.dtype}"
    if is_small_integer(x):
        is_whole = may_keep(getattr(x, "backing", x))
        return RuntimeError(
            f"{found}): they come from values that this machine does not have;"
            " copy_(torch.tensor([...])) gives "
            + ("this tensor its numbers" if is_whole else NONE_TO_A_VIEW)
        )
    return RuntimeError(
        f"{found}, elements: {x.numel()}): only integers keep theirs, up to "
        f"{MOST_INTEGERS} in a tensor; torch.sim.synchronize() waits without "
        "reading"
    )


def require_values(x: Tensor) -> None:
    """Raise RuntimeError if what is to be read has no values."""
    if not has_values(getattr(x, "backing", x)):
        raise no_values(x)


def check_readable(call: OpCall) -> None:
    """Refuse an operation that needs values, where there are none."""
    read: list[Tensor] = []
    if call.operator.is_copy and _writes_to_cpu(call):
        read = tensors_in(call.args[1])
    elif host_waits(call):
        read = read_by(call)
        if call.operator.is_indexing:
            read = [i for i in tensors_in(call.args[1]) if i.dtype in MASKS]
    for x in read:
        require_values(x)


def _writes_to_cpu(call: OpCall) -> bool:
    return any(x.device.type == "cpu" for x in written(call))


def backing_of(device: torch.device) -> torch.device:
    """Return where the values of a tensor on ``device`` lie."""
    return simulation.backing if device.type == "sim" else device
