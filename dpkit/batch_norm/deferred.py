"""Running statistics of a batch that comes in micro-batches.

In a pipeline no layer ever sees the whole batch. Four micro-batches of it::

    forward of    0        1        2        3
    normalized by its own  its own  its own  its own statistics
    gathered      0        0 1      0 1 2    0 1 2 3 ─▶ running statistics
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from dpkit.batch_norm.moments import (
    Moments,
    check_input,
    combine,
    moments,
    normalize_alone,
    update_running,
)
from dpkit.units import check_count

_AGAIN: ContextVar[bool] = ContextVar("_AGAIN", default=False)


@contextmanager
def recomputing() -> Iterator[None]:
    """Mark a block in which forward is run again for backward.

    A :class:`DeferredBatchNorm` does not count its rows again. For
    ``torch.utils.checkpoint.checkpoint`` pass
    ``use_reentrant=False, context_fn=lambda: (nullcontext(), recomputing())``.

    Example:
        >>> from dpkit.batch_norm import DeferredBatchNorm, recomputing
        >>> norm = DeferredBatchNorm(1, num_micro_batches=2)
        >>> x = torch.tensor([[1.0], [3.0]])
        >>> _ = norm(x)
        >>> with recomputing():
        ...     _ = norm(x)
        >>> norm.num_batches_tracked  # one micro-batch of the two has come
        tensor(0)
    """
    token = _AGAIN.set(True)
    try:
        yield
    finally:
        _AGAIN.reset(token)


class DeferredBatchNorm(_BatchNorm):
    """Normalize micro-batches each by itself; track statistics of batches.

    The outputs are those of ``nn.BatchNorm2d`` on each micro-batch alone. The
    running statistics move once in ``num_micro_batches`` forward passes in
    training mode, to where ``nn.BatchNorm2d`` would have moved them for the
    whole batch. Micro-batches may differ in size. After an exception, call
    :meth:`forget`. The other arguments are those of ``nn.BatchNorm2d``.

    Example:
        >>> norm = dpkit.batch_norm.DeferredBatchNorm(1, num_micro_batches=2)
        >>> _ = norm(torch.tensor([[1.0], [3.0]]))
        >>> norm.running_mean  # waits for the rest of the batch
        tensor([0.])
        >>> _ = norm(torch.tensor([[5.0], [7.0], [9.0]]))
        >>> norm.running_mean  # a tenth of the mean of all, which is 5
        tensor([0.5000])

    Source:
        After the deferred batch norm of torchgpipe, Kakao Brain, 2019.
    """

    def __init__(
        self, num_features: int, num_micro_batches: int, **options: Any
    ) -> None:
        check_count("num_features", num_features)
        check_count("num_micro_batches", num_micro_batches)
        super().__init__(num_features, **options)
        self.num_micro_batches = num_micro_batches
        self._gathered: list[Moments] = []

    def forward(self, x: Tensor) -> Tensor:
        """Normalize a micro-batch, shape (rows, channels, …)."""
        check_input(self, x)
        alone = self.training or self.running_mean is None
        y = normalize_alone(self, x, own=alone)
        if self.training and not _AGAIN.get():
            self._gather(moments(x))
        return y

    def forget(self) -> None:
        """Begin the next batch, as after a step that an exception ended."""
        self._gathered = []

    def _gather(self, part: Moments) -> None:
        """Note a micro-batch; after the last of a batch, note the batch."""
        # A new list, for replicas begin with the one of the first device.
        self._gathered = [
            Moments(*(numbers.to(part.mean.device) for numbers in known))
            for known in (*self._gathered, part)
        ]
        if len(self._gathered) == self.num_micro_batches:
            update_running(self, combine(self._gathered))
            self.forget()

    def extra_repr(self) -> str:
        """Return what ``repr`` shows."""
        given = super().extra_repr()  # type: ignore[no-untyped-call]
        return f"{given}, num_micro_batches={self.num_micro_batches}"
