"""Mixed precision: ``torch.autocast("sim", torch.bfloat16)``, as on CUDA.

Inside the block products of matrices and convolutions take their inputs in
the lower precision, what loses too much there takes them in float32, and what
mixes several inputs takes them all in the widest dtype among them.

Source:
    PyTorch's documentation of torch.amp, "CUDA Op-Specific Behavior".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only

aten = torch.ops.aten
KEY = "AutocastPrivateUse1"

LOWER = """
    addbmm addmm addmv addr baddbmm bmm chain_matmul conv1d conv2d conv3d
    conv_transpose1d conv_transpose2d conv_transpose3d convolution gru_cell
    linalg_multi_dot linear lstm_cell matmul mm mv prelu
    scaled_dot_product_attention
""".split()
FLOAT32 = """
    acos asin binary_cross_entropy_with_logits cdist cosh
    cosine_embedding_loss cosine_similarity cross_entropy_loss cumprod cumsum
    dist erfinv exp expm1 group_norm hinge_embedding_loss kl_div l1_loss
    layer_norm log log10 log1p log2 log_softmax margin_ranking_loss mse_loss
    multi_margin_loss multilabel_margin_loss nll_loss norm pdist
    poisson_nll_loss pow prod reciprocal renorm rsqrt sinh smooth_l1_loss
    soft_margin_loss softmax softplus sum tan triplet_margin_loss
""".split()
WIDEST = """
    addcdiv addcmul atan2 bilinear cat cross dot grid_sampler index_put
    scatter_add stack tensordot
""".split()


def kernels() -> Iterator[tuple[str, Callable[..., Any], str]]:
    """Yield the name of each operation that casts, its kernel and its key."""
    rules = {"lower": LOWER, "float32": FLOAT32, "widest": WIDEST}
    for rule, names in rules.items():
        for name in names:
            for overload in getattr(aten, name).overloads():
                func = getattr(getattr(aten, name), overload)
                known = torch._C._dispatch_has_kernel(func.name())
                if known and not overload.endswith("out"):
                    short = func.name().removeprefix("aten::")
                    yield short, _kernel(func, rule), KEY


def _kernel(func: Any, rule: str) -> Callable[..., Any]:
    """Return a kernel that casts, then calls ``func`` without casting."""

    def kernel(*args: Any, **kwargs: Any) -> Any:
        dtype = _dtype(rule, [args, kwargs])

        def cast(tensor: Tensor) -> Tensor:
            return tensor.to(dtype) if _may_change(tensor) else tensor

        keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, KEY))
        with torch._C._ExcludeDispatchKeyGuard(keys):
            args, kwargs = tree_map_only(Tensor, cast, (args, kwargs))
            return func(*args, **kwargs)

    return kernel


def _dtype(rule: str, values: Any) -> torch.dtype:
    """Return the dtype that a rule casts to."""
    if rule == "lower":
        return torch.get_autocast_dtype("sim")
    dtype = torch.float32
    if rule == "widest":
        leaves = [t for t in tree_leaves(values) if isinstance(t, Tensor)]
        dtypes = {t.dtype for t in leaves if _may_change(t)}
        dtype = torch.float32 if len(dtypes) != 1 else dtypes.pop()
    return dtype


def _may_change(tensor: Tensor) -> bool:
    """Tell whether autocast touches a tensor: not doubles, not integers."""
    return (
        tensor.device.type == "sim"
        and tensor.is_floating_point()
        and tensor.dtype != torch.float64
    )
