"""Bugs of ranks that share a sequence."""

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional as F

from dpbook.long_sequences.programs import (
    LENGTH,
    example,
    gradients_of_one_device,
    loss_of,
)
from dpbook.museum.exhibit import Exhibit, Version, claim
from dpkit import sim
from dpkit.sequence import (
    FUSED,
    positions,
    ring_attention,
    use_cpu_kernel_in_ring,
)


def attend_in_order(x: Tensor) -> tuple[Tensor, Tensor]:
    """Attend on a rank to a causal sequence, of shape (b, heads, s, size)."""
    rank, k = dist.get_rank(), dist.get_world_size()
    where = positions(x.shape[2], rank, k)
    part = x[:, :, where]
    return where, ring_attention(part, part, part, causal=True, kernel=FUSED)


def attend_head_and_tail(x: Tensor) -> tuple[Tensor, Tensor]:
    """Attend on a rank to a causal sequence, of shape (b, heads, s, size)."""
    rank, k = dist.get_rank(), dist.get_world_size()
    where = positions(x.shape[2], rank, k, balanced=True)
    part = x[:, :, where]
    return where, ring_attention(
        part, part, part, causal=True, balanced=True, kernel=FUSED
    )


def outputs_of_one_device(version: Version) -> None:
    """Compare the outputs of four ranks with those of one device."""
    torch.manual_seed(0)
    x = torch.randn(1, 2, 32, 4, dtype=torch.float64)
    one = F.scaled_dot_product_attention(x, x, x, is_causal=True)
    joined = torch.zeros_like(one)
    for where, output in sim.launch(on_rank, 4, version, x):
        joined[:, :, where] = output.cpu()
    away = float((joined - one).abs().max())
    claim(away < 1e-12, f"an output is {away:.1e} away from one device's")


def equal_work(version: Version) -> None:
    """See that four ranks spend as long in kernels of attention."""
    with (
        sim.machine(accelerator="a100", backing="meta", hosts="per_device"),
        sim.trace() as timeline,
    ):
        x = torch.zeros(1, 32, 16384, 128, dtype=torch.bfloat16)
        sim.launch(on_rank, 4, version, x)
    seconds = [
        sum(
            span.end - span.start
            for span in timeline.spans
            if span.device == f"sim:{rank}" and "attention" in span.name
        )
        for rank in range(4)
    ]
    words = ", ".join(f"{1e3 * s:.1f}" for s in seconds)
    balanced = max(seconds) < 1.1 * min(seconds)
    claim(balanced, f"some ranks compute for longer (ms: {words})")


def on_rank(version: Version, x: Tensor) -> tuple[Tensor, Tensor]:
    """Attend on the device of this rank."""
    where, output = version(x.to("sim"))
    return where, output


def count_from_zero(length: int) -> Tensor:
    """Return the positions of a rank's tokens."""
    return torch.arange(length // dist.get_world_size())


def count_where_they_are(length: int) -> Tensor:
    """Return the positions of a rank's tokens, from head and tail."""
    rank, k = dist.get_rank(), dist.get_world_size()
    return positions(length, rank, k, balanced=True)


def loss_to_three_digits(version: Version) -> None:
    """Compare the loss of a step on four ranks with that of one device."""
    model, tokens, targets = example()
    one = loss_of(model(tokens, torch.arange(LENGTH)), targets).item()
    for loss, _ in sim.launch(step_in_parts, 4, version):
        claim(f"{loss:.2f}" == f"{one:.2f}", f"loss: {loss:.3f}, {one:.3f}")


def gradients_as_on_one_device(version: Version) -> None:
    """Compare all gradients of four ranks with those of one device."""
    names = [name for name, _ in example()[0].named_parameters()]
    expected = gradients_of_one_device()
    for rank, (_, found) in enumerate(sim.launch(step_in_parts, 4, version)):
        away = {
            name: float((x - y).abs().max() / y.abs().max())
            for name, x, y in zip(names, found, expected, strict=True)
        }
        worst = max(away, key=away.__getitem__)
        words = f"{worst} is {away[worst]:.0%} away from one device's"
        claim(away[worst] < 1e-10, f"rank {rank}: the gradient of {words}")


def step_in_parts(version: Version) -> tuple[float, list[Tensor]]:
    """Return the loss and the gradients of a step, summed over all ranks."""
    # Here, not above: they take a second.
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.experimental import context_parallel

    use_cpu_kernel_in_ring()
    model, tokens, targets = example()
    model = model.to("sim")
    tokens = tokens.to("sim")
    targets = targets.to("sim")
    mesh = init_device_mesh("sim", (dist.get_world_size(),))
    with context_parallel(
        mesh, buffers=[tokens, targets], buffer_seq_dims=[1, 1]
    ):
        places = version(LENGTH).to("sim")
        loss = loss_of(model(tokens, places), targets) / dist.get_world_size()
        torch.autograd.backward(loss)
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    total = loss.detach()
    for x in (total, *gradients):
        dist.all_reduce(x)
    return total.item(), [x.cpu() for x in gradients]


EXHIBITS = [
    Exhibit(
        "causal ring",
        wrong=attend_in_order,
        right=attend_head_and_tail,
        check=equal_work,
        careless=outputs_of_one_device,
    ),
    Exhibit(
        "counts from zero",
        wrong=count_from_zero,
        right=count_where_they_are,
        check=gradients_as_on_one_device,
        careless=loss_to_three_digits,
    ),
]
