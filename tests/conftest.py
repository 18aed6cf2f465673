"""Fixtures that all tests share."""

from collections.abc import Callable

import pytest
import torch

import dpkit

GetDevices = Callable[[int], list[torch.device]]


@pytest.fixture(
    params=["sim", "cpu", pytest.param("cuda", marks=pytest.mark.cuda)]
)
def kind(request: pytest.FixtureRequest) -> str:
    """Each kind of device in turn."""
    return str(request.param)


@pytest.fixture
def get_devices(kind: str) -> GetDevices:
    """Give k devices of the kind; skip where there are fewer."""

    def get(count: int) -> list[torch.device]:
        available = torch.cuda.device_count()
        if kind == "cuda" and available < count:
            pytest.skip(f"{count} CUDA devices needed, {available} here")
        return dpkit.devices(count, kind)

    return get
