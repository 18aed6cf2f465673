"""Which kernel takes a call of attention: CUDA's, and the CPU's.

On CUDA PyTorch asks each of its kernels whether it can compute a call, and
takes the first one that can. If none can, it composes attention of products
and a softmax. The order is in ``sim.hardware.fused_attention``. The
conditions, in the order in which each kernel's function has them::

    what has to hold         flash         efficient      cudnn
    compute capability       from 8.0      from 5.0       from 8.0
    dtypes                   16 bits       and float32    16 bits
    causal, with keys:       as many as    any number     any number
                             queries
    a mask                   none          any            one without gradient
    dropout                  any           any            a multiple of 1/16
    size of a head, at most  256           any            256; see _cudnn

The CPU has one kernel, and torch itself is asked whether it takes a call.

Source:
    PyTorch, aten/src/ATen/native/transformers/cuda/sdp_utils.cpp (commit
    001f694), with cuDNN 9.26, which torch 2.15 comes with; and
    transformers/sdp_utils_cpp.h.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend

from dpkit.sim.hardware.fused_attention import LEAST_FLASH, kernel_order
from dpkit.sim.operators.operations import aten

SIXTEEN_BITS = (torch.float16, torch.bfloat16)
NEWEST = (12, 1)
Capability = tuple[int, int]  # the compute capability of a card


class AttentionCall(NamedTuple):
    """What attention is computed from; queries are (b, heads, length, size).

    A kernel is chosen by it, and the values are computed from it.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None
    dropout_p: float
    is_causal: bool
    scale: float | None  # of the scores; None: 1 / √size
    grouped: bool  # whether heads of queries may share one of keys

    @property
    def trains(self) -> bool:
        """Whether q, k or v may get gradients, as PyTorch asks it."""
        tensors = self.query, self.key, self.value
        wanted = any(x.requires_grad for x in tensors)
        return torch.is_grad_enabled() and wanted


def kernel_on_cuda(call: AttentionCall, card: Capability) -> str | None:
    """Return "flash", "efficient" or "cudnn"; None: it is composed."""
    if not _fits_any(call):
        return None
    for name in _order(card):
        may_run, fits = _KERNELS[name]
        if may_run() and fits(call, card):
            return name
    return None


def _order(card: Capability) -> Sequence[str]:
    """Return the kernels in the order in which they are tried."""
    given = torch._C._get_sdp_priority_order()
    if given == _USUAL_PRIORITY:
        return kernel_order(card)
    return [_NAMES[number] for number in given if number in _NAMES]


def _fits_any(call: AttentionCall) -> bool:
    """Return whether the shapes and dtypes are such as all kernels want."""
    query, key, value = tensors = call[:3]
    if any(x.dim() != 4 or x.dtype != query.dtype for x in tensors):
        return False
    if any(x.shape[0] != query.shape[0] or 0 in x.shape for x in tensors):
        return False
    heads = query.shape[1]
    of_keys = key.shape[1]
    if value.shape[1] != of_keys:
        return False
    shared = call.grouped and heads % of_keys == 0
    return heads == of_keys or shared


def is_one_kernel_on_cpu(call: AttentionCall) -> bool:
    """Return whether PyTorch's CPU computes tensors on it in one kernel."""
    choice = aten._fused_sdp_choice(
        *call[:6], scale=call.scale, enable_gqa=call.grouped
    )
    return bool(choice == SDPBackend.FLASH_ATTENTION.value)


def _flash(call: AttentionCall, card: Capability) -> bool:
    query, key, value = call[:3]
    size = query.shape[-1]
    return (
        LEAST_FLASH <= card <= NEWEST
        and query.dtype in SIXTEEN_BITS
        # With more keys its mask would begin at the last query and key.
        and (not call.is_causal or query.shape[-2] == key.shape[-2])
        and call.mask is None
        and size == key.shape[-1] == value.shape[-1] <= 256
        and (not call.trains or _has_flash_backward(call, card))
        and _has_dense_rows(call)
    )


def _has_flash_backward(call: AttentionCall, card: Capability) -> bool:
    """Return whether a card's blocks have memory for backward."""
    size = call.query.shape[-1]
    if card not in ((8, 6), (8, 9), (12, 0), (12, 1)) or size <= 192:
        return True
    return size > 224 and not call.dropout_p


def _efficient(call: AttentionCall, card: Capability) -> bool:
    query, key, value = call[:3]
    dtypes = {torch.float16, torch.float32}
    aligned = 8 if query.dtype == torch.float16 and card >= (7, 0) else 1
    if card >= (8, 0):
        dtypes.add(torch.bfloat16)
        aligned = 8 if query.dtype in SIXTEEN_BITS else 4
    size = query.shape[-1]
    return (
        (5, 0) <= card <= NEWEST
        and query.dtype in dtypes
        and size == key.shape[-1]
        and size % aligned == value.shape[-1] % aligned == 0
        and (card < (8, 0) or _begins_at_multiples(call, aligned))
        and _has_dense_rows(call)
    )


def _begins_at_multiples(call: AttentionCall, count: int) -> bool:
    """Return whether all begin at a multiple of numbers in their memory."""
    return all(x.storage_offset() % count == 0 for x in call[:3])


def _cudnn(call: AttentionCall, card: Capability) -> bool:
    query, key, value, mask, dropout_p = call[:5]
    sizes = query.shape[-1], value.shape[-1]
    most = 256 if card == (9, 0) or card[0] == 10 else 128
    # Backward has fewer sizes above 128 than forward.
    trained = max(sizes) <= 128 or sizes in ((192, 128), (256, 256))
    return (
        (8, 0) <= card <= NEWEST
        and query.dtype in SIXTEEN_BITS
        and (mask is None or _suits_cudnn(mask))
        and (16 * dropout_p).is_integer()
        and max(sizes) <= most
        and all(size % 8 == 0 for size in sizes)
        and (trained or not call.trains)
        and key.shape[-2] != 1
        and not (dropout_p and query.shape[-2] == 1)
        and not _must_be_deterministic()
        and _has_dense_rows(call)
    )


def _suits_cudnn(mask: Tensor) -> bool:
    """Return whether cuDNN takes a mask; it returns no gradient of one."""
    return mask.dim() in (2, 4) and not mask.requires_grad


def _must_be_deterministic() -> bool:
    only_warns = torch.is_deterministic_algorithms_warn_only_enabled()
    return torch.are_deterministic_algorithms_enabled() and not only_warns


def _has_dense_rows(call: AttentionCall) -> bool:
    """Return whether the values of each query, key and value adjoin."""
    rows = [x for x in call[:4] if isinstance(x, Tensor)]
    return all(x.stride(-1) == 1 or x.shape[-1] == 1 for x in rows)


# PyTorch's numbers of kernels, in the order that it has from the start.
_NAMES = {
    SDPBackend.FLASH_ATTENTION.value: "flash",
    SDPBackend.EFFICIENT_ATTENTION.value: "efficient",
    SDPBackend.CUDNN_ATTENTION.value: "cudnn",
}
_USUAL_PRIORITY = torch._C._get_sdp_priority_order()
# Kernel -> whether the program has not turned it off, and whether it fits.
_KERNELS: dict[str, tuple[Callable[[], bool], Callable[..., bool]]] = {
    "flash": (torch.backends.cuda.flash_sdp_enabled, _flash),
    "efficient": (torch.backends.cuda.mem_efficient_sdp_enabled, _efficient),
    "cudnn": (torch.backends.cuda.cudnn_sdp_enabled, _cudnn),
}
