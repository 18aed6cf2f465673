"""Logarithmic axes in plain numbers."""

import pytest
from matplotlib.figure import Figure

from dpbook.common import plots


def labels(label, low, high):
    """Return what an axis from low to high is labelled with."""
    ax = Figure().add_subplot()
    ax.set(xscale="log", xlim=(low, high))
    label(ax.xaxis)
    ax.figure.draw_without_rendering()
    shown = [
        text.get_text()
        for text, place in zip(ax.get_xticklabels(), ax.get_xticks())
        if low <= place <= high
    ]
    assert not [text for text in ax.get_xticklabels(minor=True) if text]
    return shown


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (16, 2048, "16 32 64 128 256 512 1024 2048"),
        (200, 9_000, "256 512 1024 2048 4096 8192"),
        (0.5, 8, "0.5 1 2 4 8"),
    ],
)
def test_powers_of_two_in_plain_numbers(low, high, expected):
    assert labels(plots.doublings, low, high) == expected.split()


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (200, 40_000, "256 1024 4096 16384"),
        (2**-6, 2**5, "0.0156 0.125 1 8"),
    ],
)
def test_fewer_powers_where_their_labels_would_touch(low, high, expected):
    assert labels(plots.doublings, low, high) == expected.split()


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.15, 2.5, "0.2 0.5 1 2"),
        (8, 2000, "10 100 1000"),
    ],
)
def test_decades_in_plain_numbers(low, high, expected):
    assert labels(plots.decades, low, high) == expected.split()
