"""Fused attention: which kernel a card takes.

PyTorch has three for ``scaled_dot_product_attention``. Without a mask that is
given, it takes on a card of compute capability::

                       9.x, 10.x       8.x, 11.x, 12.x       others
    float16, bfloat16  cuDNN's         FlashAttention-2      memory-efficient
    float32            memory-efficient on all

Here they are called "cudnn", "flash" and "efficient". PyTorch prefers cuDNN's
since about version 2.10, if cuDNN is newer than 9.15.0. Its builds for CUDA up
to 12.9 have an older one, and take FlashAttention-2 on these cards, as all
did before. The other conditions of PyTorch are in
``sim.kernels.attention_choice``.

Source:
    PyTorch, aten/src/ATen/native/transformers/cuda/sdp_utils.cpp, commit
    001f694: ``check_prefer_cudnn_attention`` and
    ``check_flash_attention_hardware_support``.
"""

from dpkit.sim.hardware.parts import HALVES, Accelerator

ASSUMED_CAPABILITY = "8.0"  # for a preset that does not tell: as an A100
LEAST_FLASH = (8, 0)
KERNEL_ORDER = ("flash", "efficient", "cudnn")
CUDNN_FIRST = ("cudnn", "flash", "efficient")


def capability(accelerator: Accelerator) -> tuple[int, int]:
    """Return a GPU's compute capability as two numbers.

    Example:
        >>> from dpkit.sim.hardware import ACCELERATORS
        >>> capability(ACCELERATORS["rtx4090"])
        (8, 9)
    """
    known = accelerator.compute_capability or ASSUMED_CAPABILITY
    major, _, minor = known.partition(".")
    return int(major), int(minor or 0)


def kernel_order(card: tuple[int, int]) -> tuple[str, ...]:
    """Return the kernels in the order in which PyTorch tries them.

    Example:
        >>> kernel_order((9, 0))
        ('cudnn', 'flash', 'efficient')
    """
    major, _ = card
    return CUDNN_FIRST if major in (9, 10) else KERNEL_ORDER


def attention_kernel(accelerator: Accelerator, dtype: str) -> str:
    """Return which kernel a GPU takes for attention without a mask.

    Example:
        >>> from dpkit.sim.hardware import ACCELERATORS
        >>> for name in ("v100", "a100", "h100"):
        ...     print(attention_kernel(ACCELERATORS[name], "float16"))
        efficient
        flash
        cudnn
    """
    card = capability(accelerator)
    if dtype not in HALVES or card < LEAST_FLASH:
        return "efficient"
    return kernel_order(card)[0]
