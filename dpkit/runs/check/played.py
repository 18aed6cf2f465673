"""The batches of all ranks, which one rank is given in place of other ones.

Ranks keep what their loaders yield, and one rank that runs the same script
gets it, put together, so that it has the examples of all::

    rank 0's loader     a0 a1 | c0 c1
    rank 1's loader     b0 b1 | d0 d1
    one rank's loader   a0 a1 b0 b1 | c0 c1 d0 d1

Whatever the script's sampler, seeds and augmentation do, the examples are
those of the ranks. A loader is known by its number, in the order in which a
script makes them, and so is each pass through it.
"""

import pickle
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

from dpkit.runs.torchrun.facts import EnoughSteps
from dpkit.sim.changes import replaced
from dpkit.sim.containers import tensors_in
from dpkit.sim.tensors import plain

MOST_TAPED_BYTES = 4 << 30  # of what the loaders of a rank yield


class UnlikeBatchesError(ValueError):
    """The batches of ranks cannot be put together."""


@dataclass
class TapedPass:
    """A pass through a loader."""

    batches: list[Any] = field(default_factory=list)
    # How many examples the loader has put into each; None: it is not known.
    sizes: list[int | None] = field(default_factory=list)
    has_ended: bool = False


@dataclass
class LoaderTape:
    """What a loader has yielded."""

    passes: list[TapedPass] = field(default_factory=list)
    length: int | None = None  # how many batches it says it has


@dataclass
class Tape:
    """What the loaders of a rank have yielded, by their numbers."""

    loaders: dict[int, LoaderTape] = field(default_factory=dict)
    num_bytes: int = 0

    def write(self, path: Path) -> None:
        """Write it, unless it cannot be written, or is too large."""
        if self.num_bytes <= MOST_TAPED_BYTES:
            with suppress(pickle.PicklingError, TypeError, AttributeError):
                path.write_bytes(pickle.dumps(self))


def path_of_tape(folder: Path, rank: int) -> Path:
    """Return the file of the tape of a rank."""
    return folder / f"tape {rank}"


def read_tapes(folder: Path, ranks: int) -> Tape | None:
    """Return what the loaders of all ranks have yielded, put together.

    Returns:
        The batches; None where a rank has none.

    Raises:
        UnlikeBatchesError: they have different forms.
    """
    paths = [path_of_tape(folder, rank) for rank in range(ranks)]
    if not all(path.exists() for path in paths):
        return None
    tapes: list[Tape] = [pickle.loads(path.read_bytes()) for path in paths]
    whole = Tape()
    for number in tapes[0].loaders:
        known = [t.loaders[number] for t in tapes if number in t.loaders]
        count = max(len(loader.passes) for loader in known)
        whole.loaders[number] = LoaderTape(
            passes=[
                _joined_pass([k.passes[i] for k in known if i < len(k.passes)])
                for i in range(count)
            ],
            length=known[0].length,
        )
    return whole if whole.loaders else None


def _joined_pass(passes: Sequence[TapedPass]) -> TapedPass:
    count = max(len(one.batches) for one in passes)
    joined = TapedPass(has_ended=all(one.has_ended for one in passes))
    for i in range(count):
        having = [p for p in passes if i < len(p.batches)]
        batches = [p.batches[i] for p in having]
        joined.batches.append(
            put_together(batches, [p.sizes[i] for p in having])
        )
    return joined


def record_loaders(stack: ExitStack) -> Tape:
    """Keep what loaders yield from now on, until a stack ends."""
    tape = Tape()
    number_of = _number_loaders(stack)
    sizes = _sizes_of_batches(stack)
    iterate: Any = DataLoader.__iter__

    def recorded(loader: Any) -> Iterator[Any]:
        kept = tape.loaders.setdefault(number_of(loader), LoaderTape())
        with suppress(TypeError):  # it does not know
            kept.length = len(loader)
        kept.passes.append(TapedPass())
        batches = iterate(loader)
        taped = _recording(batches, kept.passes[-1], tape, sizes(batches))
        return LoaderIterator(taped, partial(len, batches))

    stack.callback(replaced(DataLoader, "__iter__", recorded).apply())
    return tape


class LoaderIterator:
    """What ``iter(loader)`` returns: it knows how many batches there are.

    Args:
        batches: What it yields.
        length: Returns how many these are.
    """

    def __init__(
        self, batches: Iterator[Any], length: Callable[[], int]
    ) -> None:
        self._batches = batches
        self._length = length

    def __iter__(self) -> "LoaderIterator":
        return self

    def __next__(self) -> Any:
        return next(self._batches)

    def __len__(self) -> int:
        return self._length()


def _sizes_of_batches(
    stack: ExitStack,
) -> Callable[[Any], Sequence[int | None]]:
    """Note how many examples loaders take for each batch of a pass.

    Returns:
        What returns these numbers for the iterator of a loader; a loader with
        workers takes some batches ahead.
    """
    found: WeakKeyDictionary[Any, list[int | None]] = WeakKeyDictionary()
    follow: Any = _BaseDataLoaderIter._next_index

    def followed(iterator: Any) -> Any:
        taken = follow(iterator)
        size = len(taken) if isinstance(taken, (list, tuple)) else None
        found.setdefault(iterator._sampler_iter, []).append(size)
        return taken

    stack.callback(
        replaced(_BaseDataLoaderIter, "_next_index", followed).apply()
    )
    return lambda iterator: found.setdefault(iterator._sampler_iter, [])


def _recording(
    batches: Iterator[Any],
    kept: TapedPass,
    tape: Tape,
    sizes: Sequence[int | None],
) -> Iterator[Any]:
    for number, batch in enumerate(batches):
        if tape.num_bytes <= MOST_TAPED_BYTES:
            kept.batches.append(_copied(batch))
            kept.sizes.append(sizes[number] if number < len(sizes) else None)
            tape.num_bytes += sum(x.nbytes for x in tensors_in(batch))
        yield batch
    kept.has_ended = True


def play_loaders(stack: ExitStack, tape: Tape) -> None:
    """Make loaders yield what a tape has, until a stack ends."""
    number_of = _number_loaders(stack)
    begun: Counter[int] = Counter()  # passes
    iterate: Any = DataLoader.__iter__
    length: Any = DataLoader.__len__

    def played(loader: Any) -> Iterator[Any]:
        number = number_of(loader)
        kept = tape.loaders.get(number, LoaderTape())
        which = begun[number]
        begun[number] += 1
        if which < len(kept.passes):
            batches = _playing(kept.passes[which])
            return LoaderIterator(batches, partial(len, loader))
        return iterate(loader)  # type: ignore[no-any-return]

    def counted(loader: Any) -> int:
        kept = tape.loaders.get(number_of(loader), LoaderTape())
        return int(length(loader)) if kept.length is None else kept.length

    stack.callback(replaced(DataLoader, "__iter__", played).apply())
    stack.callback(replaced(DataLoader, "__len__", counted).apply())


def _playing(kept: TapedPass) -> Iterator[Any]:
    """Yield the batches of a pass.

    Raises:
        EnoughSteps: the ranks were stopped here.
    """
    for batch in kept.batches:
        yield _changed(batch, OnDevice, OnDevice.placed)
    if not kept.has_ended:
        raise EnoughSteps


def _number_loaders(stack: ExitStack) -> Callable[[Any], int]:
    """Number loaders as they are made; return what tells the number."""
    numbers: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
    init: Any = DataLoader.__init__

    def noted(loader: Any, *args: Any, **kwargs: Any) -> None:
        numbers.setdefault(loader, len(numbers))
        init(loader, *args, **kwargs)

    stack.callback(replaced(DataLoader, "__init__", noted).apply())
    return lambda loader: numbers.setdefault(loader, len(numbers))


@dataclass
class OnDevice:
    """A tensor of a batch that a loader has made on a GPU."""

    values: torch.Tensor  # on the CPU

    def placed(self) -> torch.Tensor:
        """Return it on the GPU of the rank that plays it."""
        return self.values.to("sim")


def _copied(batch: Any) -> Any:
    """Return a batch whose tensors are plain, and do not change."""

    def copied(x: torch.Tensor) -> Any:
        values = plain(x).detach().clone()
        return OnDevice(values) if x.device.type == "sim" else values

    return _changed(batch, torch.Tensor, copied)


def _changed(batch: Any, kind: type, change: Callable[[Any], Any]) -> Any:
    """Return a batch in which everything of a kind is changed."""
    if isinstance(batch, kind):
        return change(batch)
    if isinstance(batch, Mapping):
        parts = {k: _changed(x, kind, change) for k, x in batch.items()}
        return _like(batch, parts)
    if isinstance(batch, (list, tuple)):
        return _like(batch, [_changed(x, kind, change) for x in batch])
    return batch


def _like(value: Any, made: Any) -> Any:
    """Return a container of the type of another."""
    if isinstance(value, Mapping):  # of any kind, such as a defaultdict
        container: Any = copy(value)
        container.update(made)
        return container
    if hasattr(value, "_fields"):
        return type(value)(*made)
    return type(value)(made)


def _has_examples(batch: Any) -> bool:
    """Return whether there are arrays of examples in a list."""
    if isinstance(batch, Mapping):
        batch = batch.values()
    elif not isinstance(batch, (list, tuple)):
        return isinstance(batch, OnDevice) or hasattr(batch, "__array__")
    return any(map(_has_examples, batch))


def put_together(
    batches: Sequence[Any], sizes: Sequence[int | None] = ()
) -> Any:
    """Return batches put together to one.

    Args:
        batches: One of each rank.
        sizes: How many examples each has, as far as that is known.

    Raises:
        UnlikeBatchesError: they have different forms.
    """
    first = batches[0]
    if isinstance(first, OnDevice):
        values = [batch.values for batch in batches]
        return OnDevice(put_together(values, sizes))
    if isinstance(first, torch.Tensor):
        return _joined_tensor(batches)
    if isinstance(first, Mapping):
        parts = {
            k: put_together([b[k] for b in batches], sizes) for k in first
        }
        return _like(first, parts)
    if isinstance(first, (list, tuple)):
        if not any(map(_has_examples, batches)):  # such as their names
            return _like(first, _chained(batches))
        return _joined_list(batches, sizes)
    if hasattr(first, "__array__"):  # NumPy's
        return put_together(list(map(torch.as_tensor, batches))).numpy()
    with suppress(ValueError, TypeError, RuntimeError):  # it does not compare
        if all(batch == first for batch in batches):
            return first
    raise UnlikeBatchesError(
        f"batches have values that differ ({type(first)})"
    )


def _chained(lists: Sequence[Sequence[Any]]) -> list[Any]:
    return [x for one in lists for x in one]


def _joined_list(
    lists: Sequence[Sequence[Any]], sizes: Sequence[int | None]
) -> Any:
    """Return lists put together: of what each example has, or of fields."""
    is_of_examples = [len(one) for one in lists] == list(sizes)
    if is_of_examples and not _are_fields(lists, sizes):
        return _like(lists[0], _chained(lists))
    try:
        fields = [put_together(x, sizes) for x in zip(*lists)]
    except UnlikeBatchesError:  # as images with a channel for each example
        if not is_of_examples:
            raise
        fields = _chained(lists)
    return _like(lists[0], fields)


def _joined_tensor(batches: Sequence[torch.Tensor]) -> torch.Tensor:
    if not batches[0].dim():
        raise UnlikeBatchesError(
            "batches have numbers that are not of an example"
        )
    if len({x.shape[1:] for x in batches}) > 1:
        shapes = ", ".join(str(tuple(x.shape)) for x in batches)
        raise UnlikeBatchesError(
            "ranks have examples of different shapes, which are not put "
            f"together (shapes: {shapes})"
        )
    return torch.cat(list(batches))


def _are_fields(
    lists: Sequence[Sequence[Any]], sizes: Sequence[int | None]
) -> bool:
    """Return whether lists, one of each rank, may have fields of a batch.

    Otherwise they have an element for each example, as in detection, where
    images differ in size. With 2 examples::

        fields       [(2, 3, 80, 60), (2,)]              images, labels
        examples     [(3, 80, 60), (3, 70, 90)]          an image of each
                     [{boxes, labels}, {boxes, labels}]  what is seen on each
    """
    elements = _chained(lists)
    if all(isinstance(x, Mapping) for x in elements):
        return len({tuple(x) for x in elements}) > 1
    rows = [size for size in sizes if size for _ in range(size)]
    return all(map(_has_rows, elements, rows))


def _has_rows(value: Any, count: int) -> bool:
    """Return whether a part of a batch has a row for each example."""
    if isinstance(value, OnDevice):
        value = value.values
    if isinstance(value, Mapping):
        return all(_has_rows(x, count) for x in value.values())
    if isinstance(value, (list, tuple)):
        is_whole = all(_has_rows(x, count) for x in value)
        return len(value) == count or is_whole
    return bool(getattr(value, "ndim", 0)) and len(value) == count
