"""npm gets the Python of the pages, and node packs it."""

import pack_python
import pytest


@pytest.mark.slow
def test_packing_twice_gives_the_same_bytes(packed, tmp_path):
    assert not pack_python.run(
        "node", "pack.mjs", pack_python.ROOT, tmp_path, *pack_python.PACKAGES
    )
    for name in pack_python.NAMES:
        assert (packed / name).read_bytes() == (tmp_path / name).read_bytes()
