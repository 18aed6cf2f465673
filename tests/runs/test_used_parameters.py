"""DDP looks for parameters that no rank has used, as it does on GPUs."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import dpkit

STEPS = 4


class Branches(nn.Module):
    """Three layers, of which each call uses some."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        layers = [nn.Linear(5, 5, dtype=torch.float64) for _ in range(3)]
        self.layers = nn.ModuleList(layers)

    def forward(self, x, used):
        for number in used:
            x = self.layers[number](x).tanh()
        return x


class Twice(nn.Module):
    """One layer, used twice, whose activations are computed again."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.layer = nn.Linear(5, 5, dtype=torch.float64)

    def forward(self, x, used):
        for _ in range(2):
            x = checkpoint(self.layer, x, use_reentrant=True)
        return x


def turns(rank, step):
    return [(rank + step) % 3]


def first_two(rank, step):
    return [0, 1]


def own_besides(rank, step):
    return [0, 1] if rank == 0 else [0, 1, 2]


def rows(rank, step):
    size = torch.linspace(-1, 1, 10, dtype=torch.float64).view(2, 5)
    return size * (1 + rank + step)


def by_hand(model, used, accumulated=1):
    """Return the mean of the ranks' gradients after each step.

    None where nobody has used a parameter.
    """
    found = []
    grads = [None for _ in model.parameters()]
    for step in range(STEPS):
        for rank in range(2):
            x = rows(rank, step).requires_grad_()
            loss = model(x, used(rank, step)).sum()
            new = torch.autograd.grad(
                loss, [*model.parameters()], allow_unused=True
            )
            for i, grad in enumerate(new):
                if grad is not None:
                    before = 0 if grads[i] is None else grads[i]
                    grads[i] = before + grad / 2
        if (step + 1) % accumulated == 0:
            found.append(grads)
            grads = [None for _ in grads]
    return found


def by_ddp(make, used, accumulated, settings):
    """Return the gradients of a rank after each step."""
    rank = dist.get_rank()
    model = DistributedDataParallel(make().to("sim"), **settings)
    found = []
    for step in range(STEPS):
        x = rows(rank, step).to("sim").requires_grad_()
        if (step + 1) % accumulated:
            with model.no_sync():
                model(x, used(rank, step)).sum().backward()
            continue
        model(x, used(rank, step)).sum().backward()
        grads = [p.grad for p in model.parameters()]
        found.append([None if g is None else g.cpu() for g in grads])
        model.zero_grad()
    return found


FIND = {"find_unused_parameters": True}
STATIC = {"static_graph": True}
SMALL = {"bucket_cap_mb": 1e-4}
VIEW = {"gradient_as_bucket_view": True}


@pytest.mark.parametrize(
    ("make", "used", "accumulated", "settings"),
    [
        (Branches, turns, 1, FIND),
        (Branches, turns, 1, FIND | SMALL),
        (Branches, turns, 2, FIND | VIEW),
        (Branches, own_besides, 1, FIND),
        (Branches, first_two, 1, STATIC),
        (Branches, first_two, 1, STATIC | VIEW | SMALL),
        (Twice, first_two, 1, STATIC),
    ],
)
def test_gradients_are_means_of_what_ranks_have_used(
    make, used, accumulated, settings
):
    def program():
        return by_ddp(make, used, accumulated, settings)

    expected = by_hand(
        Branches() if make is Branches else Plainly(), used, accumulated
    )
    for found in dpkit.sim.launch(program, 2):
        assert len(found) == len(expected)
        for grads, means in zip(found, expected):
            for grad, mean in zip(grads, means):
                assert (grad is None) == (mean is None)
                if mean is not None:
                    torch.testing.assert_close(grad, mean)


class Plainly(Twice):
    """The same without checkpoints."""

    def forward(self, x, used):
        return self.layer(self.layer(x))


def grown(rank, step):
    return [0] if step < 2 else [0, 1]


@pytest.mark.parametrize(
    ("make", "used", "settings", "words"),
    [
        (Branches, first_two, {}, "enable unused parameter detection"),
        (Branches, grown, STATIC, "not compatible with static_graph"),
        (Twice, first_two, FIND, "mark a variable ready only once"),
    ],
)
def test_what_pytorch_refuses_is_refused(make, used, settings, words):
    with pytest.raises(RuntimeError, match=words):
        dpkit.sim.launch(lambda: by_ddp(make, used, 1, settings), 2)


def test_the_list_is_copied_and_sent_behind_the_last_bucket():
    """Six parameters: six numbers of 4 bytes, behind 90 of 8 bytes."""
    machine = dpkit.sim.machine(num_devices=2, hosts="per_device")
    with machine, dpkit.sim.trace() as timeline:
        dpkit.sim.launch(
            lambda: by_ddp(Branches, turns, 1, FIND),
            2,
            algorithm="library",
        )
    spans = [span for span in timeline.spans if span.device == "sim:0"]
    sent = [s.num_bytes for s in spans if s.name == "allreduce"]
    assert sent == [720, 24] * STEPS
    copied = [(s.name, s.num_bytes) for s in spans]
    assert copied.count(("copy from host", 24)) == STEPS
    assert copied.count(("copy to host", 24)) == STEPS
