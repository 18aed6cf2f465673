"""A machine that computes shapes, memory and time, but no numbers."""

import copy
import io
import resource

import pytest
import torch
from torch import nn

import dpkit

ZERO, ONE = dpkit.devices(2, "sim")


@pytest.fixture
def x():
    with dpkit.sim.machine(backing="meta"):
        yield torch.ones(3, 4, device=ZERO)


@pytest.mark.parametrize(
    "read",
    [
        lambda x: x.sum().item(),
        lambda x: float(x[0, 0]),
        lambda x: bool(x[0, 0] > 0),
        lambda x: x.tolist(),
        lambda x: x.nonzero(),
        lambda x: x[x > 0],
        lambda x: torch.equal(x, x),
        lambda x: x.numpy(force=True),
        lambda x: torch.zeros(3, 4).copy_(x),
        lambda x: copy.copy(x).__reduce_ex__(2),
        lambda x: f"{x.sum():.3f}",
    ],
)
def test_reading_is_refused(x, read):
    words = "no numbers to read .device: sim:0, backing: 'meta'"
    with pytest.raises(RuntimeError, match=words):
        read(x)


def test_what_needs_no_numbers_works(x):
    assert repr(x) == "tensor(..., device='sim:0', size=(3, 4))"
    y = x.to(ONE)
    assert (y @ y.t()).shape == (3, 3)
    assert torch.sim.memory_allocated(ONE) == 48
    assert x.cpu().device == torch.device("meta")
    with pytest.raises(RuntimeError, match="found at least two devices"):
        x + y
    del y


def test_it_takes_the_time_that_it_takes_with_numbers():
    def seconds():
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(30, 20), nn.ReLU(), nn.Linear(20, 10))
        net.to(ZERO)
        optimizer = torch.optim.Adam(net.parameters())
        X = torch.ones(50, 30)
        for _ in range(2):
            with dpkit.Timer([ZERO]) as timer:
                optimizer.zero_grad()
                net(X.to(ZERO)).square().mean().backward()
                optimizer.step()
        return timer.seconds

    with dpkit.sim.machine():
        with_numbers = seconds()
    with dpkit.sim.machine(backing="meta"):
        without = seconds()
    assert without == pytest.approx(with_numbers, rel=1e-9)


class Layer(nn.Module):
    """A transformer's layer, of 5120 features and 40 heads."""

    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(5120) for _ in range(2)])
        self.inputs = nn.Linear(5120, 3 * 5120)
        self.output = nn.Linear(5120, 5120)
        self.wide = nn.Linear(5120, 4 * 5120)
        self.narrow = nn.Linear(4 * 5120, 5120)

    def forward(self, x):
        parts = self.inputs(self.norms[0](x)).chunk(3, dim=-1)
        heads = [p.unflatten(-1, (40, 128)).transpose(1, 2) for p in parts]
        seen = nn.functional.scaled_dot_product_attention(
            *heads, is_causal=True
        )
        x = x + self.output(seen.transpose(1, 2).flatten(2))
        wide = nn.functional.gelu(self.wide(self.norms[1](x)))
        return x + self.narrow(wide)


def test_loading_takes_shapes_and_memory():
    file = io.BytesIO()
    w = torch.arange(6.0)
    torch.save([w, w[2:]], file)
    file.seek(0)
    with dpkit.sim.machine(backing="meta"):
        before = torch.sim.memory_allocated(1)
        whole, part = torch.load(file, map_location="sim:1")
        assert str(whole.device) == "sim:1"
        assert (whole * 2).shape == (6,)
        assert part.shape == (4,)
        assert part.storage_offset() == 2
        assert torch.sim.memory_allocated(1) - before == w.nbytes
        with pytest.raises(RuntimeError, match="no numbers to read"):
            whole.tolist()


def peak_kilobytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def test_a_model_that_fits_on_no_laptop_can_be_timed():
    """Thirteen billion parameters on eight devices."""
    before = peak_kilobytes()
    with dpkit.sim.machine(accelerator="h100", backing="meta"):
        devices = dpkit.devices(8, "sim")
        stages = []
        for device in devices:
            with device:
                stages.append(nn.Sequential(*[Layer() for _ in range(5)]))
        params = [p for stage in stages for p in stage.parameters()]
        assert sum(p.numel() for p in params) > 12.5e9
        optimizer = torch.optim.Adam(params)
        with dpkit.Timer(devices) as timer:
            x = torch.ones(1, 2048, 5120, device=devices[0])
            for stage, device in zip(stages, devices):
                x = stage(x.to(device))
            x.square().mean().backward()
            optimizer.step()
        assert 1 < timer.seconds < 20  # 1.5e14 flops one after another
        assert torch.sim.max_memory_allocated(0) > 20e9
        del x, params, optimizer, stages
    # The peak is that of all tests of this process: what counts is what this
    # one adds, of the 50 GB that its parameters would take.
    assert peak_kilobytes() - before < 0.5e6


def test_what_a_machine_without_numbers_leaves_is_of_no_use():
    with dpkit.sim.machine(backing="meta"):
        x = torch.ones(3, device=ZERO)
    y = torch.zeros(3, device=ZERO)
    with pytest.raises(RuntimeError, match="another simulated machine"):
        y.add_(x)
