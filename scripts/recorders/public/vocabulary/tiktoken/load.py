"""What a script reads its vocabulary with."""


def load_tiktoken_bpe(
    path: str, expected_hash: str | None = None
) -> dict[bytes, int]:
    """Return the rank of each byte."""
    return {bytes([byte]): byte for byte in range(256)}
