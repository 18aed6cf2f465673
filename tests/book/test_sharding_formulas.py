"""What the formulas of ZeRO say is what a step sends and keeps."""

import pytest

from dpbook.formulas.sharding import kept_bytes, sent_bytes
from tests.kit.test_sharding import STAGES, kept, step_of

SIZE = 166  # parameters, of 8 bytes each


@pytest.mark.parametrize("k", range(1, 6))
@pytest.mark.parametrize(("stage", "engine"), list(enumerate(STAGES)))
def test_bytes_sent(k, stage, engine):
    """By all ports together."""
    losses = 8 * (k - 1)  # each goes to the first device
    expected = k * sent_bytes(stage, 8 * SIZE, k) + losses
    assert step_of(engine, k).num_bytes == round(expected)


@pytest.mark.parametrize("k", range(1, 6))
@pytest.mark.parametrize(("stage", "engine"), list(enumerate(STAGES)))
def test_memory_kept(k, stage, engine):
    """On the average, as the devices divide no block without a rest."""
    average = sum(kept_bytes(stage, SIZE, k, itemsize=8).values())
    assert sum(kept(engine, k)) == pytest.approx(k * average)
