"""Operators that have arithmetic, none of which is charged.

They are charged for their traffic alone, as a sum is. For products with
vectors that is right: memory limits them on GPUs, too. The others take longer
on a GPU than here, and warn of that when they are charged for the first time.
"""

import warnings
from typing import Any

from dpkit.sim.places import here

LIMITED_BY_MEMORY = set("addmv addmv_ addr addr_ dot mv vdot".split())
# What the page on limits says of them -> the operators.
UNCHARGED = {
    "what `torch.linalg` computes": (
        "_cholesky_solve_helper _linalg_det _linalg_eigh _linalg_eigvals "
        "_linalg_slogdet _linalg_solve_ex _linalg_svd cholesky_inverse "
        "cholesky_solve geqrf linalg_cholesky_ex linalg_eig "
        "linalg_householder_product linalg_inv_ex linalg_ldl_factor_ex "
        "linalg_ldl_solve linalg_lstsq linalg_lu linalg_lu_factor_ex "
        "linalg_lu_solve linalg_matrix_exp linalg_matrix_sqrth linalg_pinv "
        "linalg_polar linalg_qr linalg_solve_triangular ormqr "
        "triangular_solve"
    ).split(),
    "`torch.fft`": ["_fft_c2c", "_fft_c2r", "_fft_r2c"],
    "distances by `torch.cdist`": ["_cdist_backward", "_cdist_forward"],
    "by `torch.pdist`": ["_pdist_backward", "_pdist_forward"],
    "torchvision's `deform_conv2d`": [
        "_deform_conv2d_backward",
        "deform_conv2d",
    ],
    # PyTorch calls most of them inside of others, or on a CPU alone.
    "`torch.conv_tbc`": (
        "_compute_linear_combination _dyn_quant_matmul_4bit "
        "_nnpack_spatial_convolution _slow_conv2d_backward "
        "_slow_conv2d_forward _weight_int4pack_mm_for_cpu "
        "_weight_int8pack_mm conv_tbc mkldnn_convolution mkldnn_rnn_layer "
        "mkldnn_rnn_layer_backward "
        "slow_conv3d_forward slow_conv_dilated2d slow_conv_dilated3d "
        "slow_conv_transpose2d slow_conv_transpose3d"
    ).split(),
}
WARNED_OF = {name for names in UNCHARGED.values() for name in names}

_warned: set[str] = set()  # the operators that a program was warned of


def no_flops(name: str, *_: Any) -> int:
    """Count nothing for an operator, and warn of that the first time."""
    if name not in _warned:
        _warned.add(name)
        warnings.warn_explicit(
            "its arithmetic is not charged, so that a GPU takes longer "
            f"(operation: {name})",
            UserWarning,
            *here().program,
        )
    return 0
