"""Names of flash_attn, without the kernels."""

from flash_attn import not_there as apply_rotary_emb  # noqa: F401
