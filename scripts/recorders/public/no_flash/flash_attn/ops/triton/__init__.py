"""Names of flash_attn, without the kernels."""
