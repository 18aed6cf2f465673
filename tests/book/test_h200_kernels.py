"""The rates of convolutions that presets have from kernels on an H200."""

import json

import pytest
from recorders.trust import h200_kernels

from dpkit.sim.hardware import ACCELERATORS
from tests.repository import ROOT

RECORD = json.loads((ROOT / "book/_data/gpu_operators.json").read_text())
RATES = h200_kernels.convolution_rates(RECORD)


@pytest.mark.parametrize("card", ["h100", "h200", "b200"])
def test_presets_from_hopper_on_have_the_rates_that_were_timed(card):
    gpu = ACCELERATORS[card]
    found = {"fast": gpu.fast_convolutions, "other": gpu.other_convolutions}
    assert found == {
        which: {name: round(rate, 2) for name, rate in rates.items()}
        for which, rates in RATES.items()
    }


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_in_nhwc_convolutions_of_16_bits_are_twice_as_fast(precision):
    """As the sources of the presets say."""
    last = h200_kernels.convolution_rates(RECORD, "NHWC")
    for which, rates in RATES.items():
        times = last[which][precision] / rates[precision]
        assert times == pytest.approx(2, rel=0.1)


def test_a_rate_is_that_of_all_convolutions_one_after_another():
    """Two of 100 and 200 operations forward take 1 + 2 and 3 + 3 seconds."""
    one = {
        "precision": "tf32", "format": "NCHW", "rows": 256, "kernel": 3,
        "stride": 1, "flops": 100, "forward_seconds": 1, "backward_seconds": 2,
    }  # fmt: skip
    two = one | {"flops": 200, "forward_seconds": 3, "backward_seconds": 3}
    strided = [
        one | {"stride": 2, "precision": p} for p in h200_kernels.PRECISIONS
    ]
    others = [one | {"precision": p} for p in h200_kernels.PRECISIONS]
    rows = [one, two, *strided, *others]
    found = h200_kernels.convolution_rates({"convolutions": rows})
    peak = ACCELERATORS["h200"].flops_per_second["tf32"]
    assert found["fast"]["tf32"] * peak == pytest.approx(3 * 400 / 12)
    assert found["other"]["tf32"] * peak == pytest.approx(3 * 100 / 3)
