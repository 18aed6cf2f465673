"""What is known of an operator of torch: one record, made at its first call.

Whatever runs, charges or checks an operation asks the record of its operator
(``operations.Operator``), and nothing is looked up twice. Most of it is in
torch's schema; what the schema does not say is in the tables below. What an
operator costs is in

``flops`` -- its arithmetic;
``memory_traffic`` -- what its kernels read and write;
``precision`` -- at which rate it computes.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch._ops import OpOverload

from dpkit.sim.operators.flops import counting
from dpkit.sim.operators.memory_traffic import memory_traffic_of
from dpkit.sim.operators.operations import Operator, aten, base_name
from dpkit.sim.operators.precision import rate_of
from dpkit.sim.operators.random_numbers import takes_generator
from dpkit.sim.operators.refusals import refusing_quantized
from dpkit.sim.streams.sending import NAMESPACE

# They ask for a tensor's form alone, or give it other memory.
_ASK_FORM = set(
    "empty_like full_like ones_like rand_like randint_like randn_like "
    "zeros_like new_empty new_empty_strided new_full new_ones new_zeros "
    "record_stream resize_ set_".split()
)
# What they write to is not read.
_OVERWRITE = {"copy_", "fill_", "zero_", "_foreach_copy_", "_foreach_zero_"}
# They make memory, or rename it, and launch nothing.
_MAKE_MEMORY = set(
    "_unsafe_view empty empty_like empty_permuted empty_strided new_empty "
    "new_empty_strided".split()
)
# Their schemas do not say that they write to the running mean and variance,
# in these places, if argument 5 is true: training, or how fast these move.
_WRITE_IN_TRAINING = dict.fromkeys(
    ("native_batch_norm", "batch_norm_gather_stats_with_counts"), (3, 4)
)
# These read one device and write another.
_COPIES = {
    aten.copy_.default,
    aten._copy_from.default,
    aten._to_copy.default,
    aten._foreach_copy_.default,
    aten._foreach_copy.default,
}
_INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_"}
# Operation -> the position of the argument that may stay on the CPU.
_CPU_ARGUMENTS = dict.fromkeys(
    "_index_put_impl_ _pack_padded_sequence _pad_packed_sequence "
    "_unsafe_index _unsafe_index_put index index_put index_put_".split(),
    1,
) | dict.fromkeys(
    "_foreach_addcdiv _foreach_addcdiv_ _foreach_addcmul "
    "_foreach_addcmul_".split(),
    3,
)
# They take no CPU tensor for a number.
_NO_CPU_SCALARS = set(
    "cat embedding gather index_select nll_loss_forward scatter scatter_add "
    "stack take".split()
)
# CUDA runs them as several others too, products among them: the distances of
# torch.cdist, and nn.Bilinear with its gradients.
_OF_PRODUCTS = {"_euclidean_dist", "_trilinear"}
# Operator -> what computes it on the CPU in its place; ``kernels.own`` puts it
# here.
STAND_INS: dict[OpOverload, Callable[..., Any]] = {}

# The address of an operator -> its record, which keeps the operator alive. To
# ask by the operator itself would call a function of Python in torch.
_records: dict[int, Operator] = {}


def operator_of(func: OpOverload) -> Operator:
    """Return the record of an operator."""
    found = _records.get(id(func))
    if found is None:
        found = _records[id(func)] = _made(func)
    return found


def _made(func: OpOverload) -> Operator:
    own = refusing_quantized(func) if func.namespace == "quantized" else func
    name = base_name(func)
    schema = func._schema.arguments
    tags = func.tags
    kind, returned = _alias_kind(func)
    key = own_key(func)
    is_indexing = name in _INDEXING
    # The values decide the result's shape, or are a number that Python reads.
    waits = torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape
    reads_number = func is aten._local_scalar_dense.default
    asks_form = name in _ASK_FORM
    keeps_memory = kind != "view" and torch.Tag.inplace_view not in tags
    writes = tuple(i for i, x in enumerate(schema) if x.is_write)
    unread = {i for i, x in enumerate(schema) if x.is_out}
    unread |= set(writes) if name in _OVERWRITE else set()
    unread |= {0} if asks_form and kind == "new" else set()
    return Operator(
        func=func,
        name=name,
        arguments=tuple(x.name for x in schema),
        kind=kind,
        returned=returned,
        reads=tuple(i for i in range(len(schema)) if i not in unread),
        writes=writes,
        writes_in_training=_WRITE_IN_TRAINING.get(name, ()),
        asks_form=asks_form,
        is_list=name.startswith("_foreach"),
        is_copy=func in _COPIES,
        is_indexing=is_indexing,
        cpu_argument=_CPU_ARGUMENTS.get(name),
        takes_cpu_scalars=name not in _NO_CPU_SCALARS,
        generator=takes_generator(func),
        is_random=torch.Tag.nondeterministic_seeded in tags,
        may_wait=is_indexing or any(tag in tags for tag in waits),
        is_composed=reads_number or key is not None or _is_composed(func),
        key=key,
        run=STAND_INS.get(func, own),
        launches=keeps_memory and name not in _MAKE_MEMORY,
        memory_traffic=memory_traffic_of(name),
        flops=counting(func),
        rate=rate_of(func),
        per_gradient=name == "convolution_backward",
    )


def _alias_kind(func: OpOverload) -> tuple[str, tuple[int, ...]]:
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


def _is_composed(func: OpOverload) -> bool:
    """Return whether ``func`` is run as several other operations."""
    # Autograd has done so before an operation comes here, except inside
    # another dispatch and in inference mode.
    name = func.name()
    composed = has_kernel(name, "CompositeImplicitAutograd")
    return composed and not has_kernel(name, "CPU")


def own_key(func: OpOverload) -> torch._C.DispatchKey | None:
    """Return the key of a kernel that takes simulated tensors as they are.

    It is ours, or that of an operation that is not one of PyTorch's basic
    ones, such as those of FSDP.
    """
    name = func.name()
    explicit = "CompositeExplicitAutograd"
    ours = func.namespace in ("aten", NAMESPACE)
    keys = ["PrivateUse1", explicit, f"{explicit}NonFunctional"]
    if ours and has_kernel(name, "AutogradPrivateUse1"):
        keys = ["AutogradPrivateUse1"]
    elif func.namespace == "aten" and base_name(func) not in _OF_PRODUCTS:
        return None
    found = [key for key in keys if has_kernel(name, key)]
    return getattr(torch._C.DispatchKey, found[0]) if found else None


def has_kernel(name: str, key: str) -> bool:
    """Return whether torch has a kernel for an operation and dispatch key."""
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return bool(has(name, key))
