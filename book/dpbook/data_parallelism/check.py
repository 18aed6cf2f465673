"""The checks of the exercises on data parallelism."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from dpbook.common.batches import Batches
from dpbook.common.datasets import Labelled
from dpbook.common.models import lenet, lenet_params
from dpbook.common.required_messages import require_ports
from dpbook.exercises.verdict import Answer, require
from dpkit import Timer, TrainingRecord, devices, replicate, train
from dpkit.sim import machine, now
from dpkit.traffic import Traffic

LOSS = nn.CrossEntropyLoss(reduction="none")


def _small_set(num_examples: int, seed: int) -> Labelled:
    """Return ten patterns, each example one of them in noise."""
    generator = torch.Generator().manual_seed(0)
    patterns = torch.rand(10, 1, 28, 28, generator=generator)
    generator.manual_seed(seed)
    noise = torch.rand(num_examples, 1, 28, 28, generator=generator)
    labels = torch.arange(num_examples) % 10
    return Labelled(patterns[labels] + 0.3 * noise, labels)


def _batches(batch_size: int) -> tuple[Batches, Batches]:
    train_batches = Batches(*_small_set(60, seed=1), batch_size)
    return train_batches, Batches(*_small_set(50, seed=2), batch_size=50)


@contextmanager
def _float32_in_convolutions() -> Iterator[None]:
    """Keep GPUs from rounding what convolutions read to TF32 in the block.

    They do so by default. A difference in the last of 24 bits can move a
    value to another number of 11 bits, and training lets that grow.
    """
    cudnn: Any = torch.backends.cudnn
    precision = cudnn.conv
    before = precision.fp32_precision
    precision.fp32_precision = "ieee"
    try:
        yield
    finally:
        precision.fp32_precision = before


class _Reference(NamedTuple):
    params: list[Tensor]  #: on the CPU
    accuracy: float


def _train_on_one(batch_size: int, lr: float) -> _Reference:
    """Train LeNet on the small sets and one device, as the answers should."""
    batches = _batches(batch_size)
    ranks = devices(1, "sim")
    record = train(
        lenet, LOSS, lenet_params(), *batches, ranks, lr, num_epochs=2
    )
    params = [p.detach().cpu() for p in record.device_params[0]]
    return _Reference(params, record.accuracies[-1])


def _require_same_training(
    record: Any, reference: _Reference, num_devices: int
) -> None:
    """Raise NotYet unless a run ended with the reference's values."""
    why = f"it returned {record!r}, not what train() returns"
    require(isinstance(record, TrainingRecord), why)
    used = len(record.device_params)
    why = f"it trained on {used} devices, not {num_devices}"
    require(used == num_devices, why)
    distance = max(
        float((p.detach().cpu() - q).abs().max())
        for params in record.device_params
        for p, q in zip(params, reference.params, strict=True)
    )
    why = f"its parameters are {distance:.0e} away from those of one device"
    require(distance < 1e-4, f"{why} that takes the whole batch")
    found = record.accuracies[-1]
    expected = reference.accuracy
    why = f"its accuracy on the test set is {found}, expected {expected}"
    require(abs(found - expected) < 0.05, why)


@_float32_in_convolutions()
def check_train_scaled(answer: Answer) -> None:
    """``batch_size`` rows on each device, whatever their number."""
    sets = _small_set(60, seed=1), _small_set(50, seed=2)
    for k in (1, 3):
        record = answer(*sets, devices(k, "sim"), 8, 0.03, 2)
        _require_same_training(record, _train_on_one(8 * k, lr=0.03), k)


@_float32_in_convolutions()
def check_accuracies_by_rate(answer: Answer) -> None:
    """One accuracy for each rate, alike on any number of devices."""
    rates = [0.03, 0.01]
    expected = {lr: _train_on_one(20, lr).accuracy for lr in rates}
    for k in (1, 3):
        ranks = devices(k, "sim")
        with Traffic() as traffic:
            found = answer(rates, *_batches(20), ranks, 2)
        why = f"it returned {found}, not an accuracy for each of {rates}"
        require(isinstance(found, dict) and list(found) == rates, why)
        idle = [str(d) for d in ranks if not traffic.received[d]]
        require(not idle, f"nothing was sent to {', '.join(idle)}")
        why = f"on {k} devices it returned {found}, expected {expected}"
        # Rounding may move an example or two of the fifty.
        near = all(abs(found[lr] - expected[lr]) < 0.05 for lr in rates)
        require(near, why)


def check_allreduce_by_parts(answer: Answer) -> None:
    """The sum on every rank, and no port busier than it must be."""
    for k, length in ((2, 8), (3, 7), (4, 3), (5, 40)):
        ranks = devices(k, "sim")
        tensors = [
            torch.arange(length, device=d) * 10**r for r, d in enumerate(ranks)
        ]
        total = torch.stack([t.cpu() for t in tensors]).sum(dim=0)
        given = list(tensors)  # the answer may put others into its list
        with Traffic() as traffic:
            answer(tensors)
        case = f"{length} elements on {k} devices"
        for rank, tensor in enumerate(given):
            wrong = (tensor.cpu() != total).nonzero().flatten().tolist()
            require(not wrong, f"{case}: rank {rank} is wrong at {wrong}")
        # A rank receives its own part, 8 bytes a value, from the k - 1
        # others, and the finished parts of the others from them. 7 values
        # on 3 devices: parts of 3 at most, 2 * 2 * 3 values each way.
        limit = 2 * (k - 1) * 8 * -(-length // k)
        require_ports(traffic, ranks, limit, case)


def check_accuracy_on_all(answer: Answer) -> None:
    """The exact fraction, with every device at work."""
    scores = torch.eye(7)
    y = torch.tensor([0, 1, 2, 3, 4, 0, 0])
    for k in (1, 2, 3, 8):
        ranks = devices(k, "sim")
        seen: set[torch.device] = set()

        def net(
            X: Tensor, params: Sequence[Tensor], seen: set[Any] = seen
        ) -> Tensor:
            require(len(X) > 0, "it runs the network on an empty shard")
            seen.add(X.device)
            return X @ params[0]

        params = replicate([torch.eye(7)], ranks)
        found = answer(net, scores, y, params, ranks)
        right = found is not None and abs(float(found) - 5 / 7) < 1e-6
        why = f"the accuracy is 5/7; devices: {k}, returned: {found}"
        require(right, why)
        idle = len(set(ranks[: len(y)]) - seen)
        require(not idle, f"{idle} of {k} devices had nothing to do")
    _require_work_at_once(answer)


def _require_work_at_once(answer: Answer) -> None:
    """No device waits until another has ended.

    On the slow GPU that is simulated here, the network takes much longer than
    its launches. So if the program reads a count before it gives the next
    device its work, that device begins late.
    """
    X, y = torch.eye(6), torch.zeros(6, dtype=torch.long)
    launched: list[float] = []

    def net(X: Tensor, params: Sequence[Tensor]) -> Tensor:
        launched.append(now())
        (weight,) = params
        return X @ (weight @ weight)[:6]

    with machine(accelerator="k80", hosts="one"):
        ranks = devices(3, "sim")
        params = replicate([torch.zeros(1200, 1200)], ranks)
        with Timer(ranks[:1]) as alone:
            net(X.to(ranks[0]), params[0])
        launched.clear()
        answer(net, X, y, params, ranks)
    last, seconds = launched[-1] - launched[0], alone.seconds
    why = (
        f"the last of 3 devices begins {1e3 * last:.1f} ms after the first, "
        f"and each takes {1e3 * seconds:.1f} ms: a device waits for another"
    )
    require(last < seconds, why)
