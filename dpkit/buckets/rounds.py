"""All buckets of a rank, filled by backward and given to the caller in turn.

A backward is a round. Two buckets, [g3 g2] and [g1 g0], on a rank whose
backward makes g1 before g2::

    call         bucket 0    bucket 1    told to the caller
    note(p3)     g3  ·       ·   ·       on_start
    note(p1)     g3  ·       g1  ·
    note(p0)     g3  ·       g1  g0      nothing: bucket 0 has to be first
    note(p2)     g3  g2      g1  g0      on_full(bucket 0), on_full(bucket 1)
    _finish()                            on_end

If the loss does not depend on p2, then note(p2) is never called: ``_finish``
gives bucket 0 to the caller, with zeros for g2, and then bucket 1. So all
ranks reduce the same buckets in the same order, whatever their own backward
does.
"""

import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from torch import Tensor
from torch.autograd import Variable
from torch.utils.hooks import RemovableHandle

from dpkit.arguments import check_function, tensor_list
from dpkit.buckets.bucket import Bucket, assign
from dpkit.units import check_number

BYTES_PER_MEGABYTE = 2**20  # as PyTorch counts the megabytes of buckets

# Two buckets for one gradient would each write it while the other sends.
_WATCHING: "weakref.WeakSet[Buckets]" = weakref.WeakSet()


class Buckets:
    """The gradients of one rank, in buckets that the caller gets when full.

    Gradients are views of the buckets, from the first round on. At first the
    buckets are filled from the last parameter to the first. :attr:`order` is
    the order that backward took; :meth:`rebuild` makes buckets for it.

    The parameters do not keep the buckets alive. Buckets that are made later
    for the same parameters, or for these and more, take their gradients over;
    a ValueError is raised if the earlier ones hold others too.

    Args:
        bucket_megabytes: The size at which a bucket is closed, in units of
            2^20 bytes.
        first_megabytes: The size of the first, if that is less: it leaves
            early.
        on_full: Is given each bucket in turn. It may send it off and return.
        on_end: Is given the ``Buckets`` at the end of backward. When all have
            travelled, it calls :meth:`settle`.
        on_start: Is given them when backward makes its first gradient.

    Example:
        >>> net = nn.Linear(3, 2)
        >>> buckets = dpkit.buckets.Buckets(
        ...     net.parameters(), 5e-6, on_full=lambda b: print(b.flat)
        ... )
        >>> net(torch.tensor([[1.0, 2.0, 3.0]])).sum().backward()
        tensor([1., 1., 1.])
        tensor([1., 2., 3., 1., 2., 3., 1.])
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        bucket_megabytes: float = 25.0,
        first_megabytes: float = 1.0,
        *,
        on_full: Callable[[Bucket], object],
        on_end: "Callable[[Buckets], object]" = lambda buckets: None,
        on_start: "Callable[[Buckets], object]" = lambda buckets: None,
    ) -> None:
        check_number("bucket_megabytes", bucket_megabytes)
        check_number("first_megabytes", first_megabytes)
        check_function("on_full", on_full)
        if not (bucket_megabytes > 0 and first_megabytes > 0):
            raise ValueError(
                "a bucket has room for nothing (bucket_megabytes: "
                f"{bucket_megabytes}, first_megabytes: {first_megabytes})"
            )
        self.params = tensor_list(params)
        self.enabled = True  #: if not, backward leaves gradients as they are
        first_megabytes = min(first_megabytes, bucket_megabytes)
        self._bucket_bytes = bucket_megabytes * BYTES_PER_MEGABYTE
        self._first_bytes = first_megabytes * BYTES_PER_MEGABYTE
        self._on_start = on_start
        self._on_full = on_full
        self._on_end = on_end
        self._end: weakref.ref[partial[None]] | None = None
        self._made: list[int] = []  # the places of gradients, in order of time
        self._build(list(range(len(self.params)))[::-1])
        _take_over(self)
        self._handles = _watch(self)
        _WATCHING.add(self)

    @property
    def order(self) -> list[int]:
        """The places of the parameters as the last backward made gradients."""
        return list(dict.fromkeys([*self._made, *self._planned]))

    def rebuild(self, order: Sequence[int]) -> None:
        """Make the buckets for an order of all parameters' places."""
        # From [2, 1, 0] to [1, 2, 0]: the gradients that are views of the old
        # buckets are copied into the new ones.
        if sorted(order) != list(range(len(self.params))):
            raise ValueError(
                "the order does not have each parameter once (order: "
                f"{list(order)}, parameters: {len(self.params)})"
            )
        if list(order) != self._planned:
            self._build(list(order))
            for bucket in self.buckets:
                for place in range(len(bucket.params)):
                    bucket.take_in(place)

    def settle(self) -> None:
        """Give a gradient to parameters that lack one, if a rank had it.

        To be called when all buckets have been summed, or averaged, over all
        ranks.
        """
        for bucket in self.buckets:
            bucket.settle()

    def release(self) -> None:
        """Stop collecting gradients."""
        _remove(self._handles)
        _WATCHING.discard(self)

    def _build(self, order: list[int]) -> None:
        self._planned = order
        params = [self.params[i] for i in order]
        groups = assign(params, self._bucket_bytes, self._first_bytes)
        #: In the order in which the caller gets them.
        self.buckets = [
            Bucket(index, [params[i] for i in group])
            for index, group in enumerate(groups)
        ]
        self._number = {p: i for i, p in enumerate(self.params)}
        self._where = {
            p: (bucket, place)
            for bucket in self.buckets
            for place, p in enumerate(bucket.params)
        }

    def note(self, p: Tensor) -> None:
        """Take note that backward has made the gradient of a parameter."""
        if not self.enabled:
            return
        if self._end is None or self._end() is None:
            self._start()
        bucket, place = self._where[p]
        if bucket.is_sent:
            raise RuntimeError(
                "a second gradient came when the first was on its way (shape "
                f"of the parameter: {tuple(p.shape)}); checkpoint layers that "
                "share it with use_reentrant=False"
            )
        bucket.note_ready(place)
        self._made.append(self._number[p])
        while self._waiting and self._waiting[0].is_full:
            self._hand_on()

    def _start(self) -> None:
        """Begin a round, and have the engine call its end."""
        self._on_start(self)
        for bucket in self.buckets:
            bucket.clear()
        self._made = []
        self._waiting = deque(self.buckets)
        # Only the engine holds `end`: until it has called it, or until an
        # exception ends backward. Then the reference to it is dead, and the
        # next gradient starts a round.
        end = partial(self._finish)
        Variable._execution_engine.queue_callback(end)
        self._end = weakref.ref(end)

    def _finish(self) -> None:
        """Hand on the buckets that did not become full, and end the round."""
        while self._waiting:
            self._hand_on()
        self._end = None
        self._on_end(self)

    def _hand_on(self) -> None:
        bucket = self._waiting.popleft()
        bucket.close()
        self._on_full(bucket)


def _take_over(buckets: Buckets) -> None:
    for other in list(_WATCHING):
        shared = set(buckets.params).intersection(other.params)
        if len(shared) == len(other.params):
            other.release()
        elif shared:
            raise ValueError(
                "other buckets hold some of the parameters, and further ones "
                f"(shared: {len(shared)}, in the others: {len(other.params)}"
                "); release() those first"
            )


def _watch(buckets: Buckets) -> list[RemovableHandle]:
    """Have backward report each gradient, for as long as there are buckets."""
    note = weakref.WeakMethod(buckets.note)

    def hook(p: Tensor) -> None:
        found = note()
        if found is not None:
            found(p)

    handles = [
        p.register_post_accumulate_grad_hook(hook) for p in buckets.params
    ]
    weakref.finalize(buckets, _remove, handles).atexit = False
    return handles


def _remove(handles: Sequence[RemovableHandle]) -> None:
    for handle in handles:
        handle.remove()
