"""The functional collectives, with their gradients; added to ``CALLS``."""

import torch
from torch.distributed import _functional_collectives as functional

from tests.runs.calls_on_ranks import calling, every, numbers


@calling("functional all_reduce", lambda r, k: [sum(every(k, 5))])
def functional_all_reduce(here):
    return [functional.all_reduce(here.own(5), "sum", here.group) + 0]


@calling(
    "functional all_gather, with autograd",
    # The loss is Σ w y, with the same w on all ranks: x's gradient is k w.
    lambda r, k: [
        torch.cat(every(k, 2)),
        k * numbers(9, 2 * k)[2 * r : 2 * r + 2],
    ],
)
def functional_all_gather(here):
    x = here.own(2).requires_grad_()
    y = functional.all_gather_tensor_autograd(x, 0, here.group)
    (y * numbers(9, 2 * here.k).to(here.device)).sum().backward()
    return [y.detach() + 0, x.grad]


@calling(
    "functional reduce_scatter, with autograd",
    lambda r, k: [
        sum(every(k, 3 * k))[3 * r : 3 * r + 3],
        torch.cat([numbers(9 + s, 3) for s in range(k)]),
    ],
)
def functional_reduce_scatter(here):
    x = here.own(3 * here.k).requires_grad_()
    y = functional.reduce_scatter_tensor_autograd(x, "sum", 0, here.group)
    (y * numbers(9 + here.rank, 3).to(here.device)).sum().backward()
    return [y.detach() + 0, x.grad]


@calling(
    "functional all_to_all, with autograd",
    lambda r, k: [
        torch.stack(every(k, k))[:, r],
        torch.stack([numbers(9 + s, k)[r] for s in range(k)]),
    ],
)
def functional_all_to_all(here):
    x, ones = here.own(here.k).requires_grad_(), [1] * here.k
    y = functional.all_to_all_single_autograd(x, ones, ones, here.group)
    (y * numbers(9 + here.rank, here.k).to(here.device)).sum().backward()
    return [y.detach() + 0, x.grad]
