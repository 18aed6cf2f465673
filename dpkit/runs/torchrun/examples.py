"""Mistakes in how ranks share the examples of a dataset.

of 9 examples        rank 0   0 2 4 6 8        rank 1   1 3 5 7 0
                                               the first is repeated
"""

import mmap
import random
import sys
import zlib
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import (
    BatchSampler,
    RandomSampler,
    Subset,
    get_worker_info,
)
from torch.utils.data._utils.fetch import _MapDatasetFetcher
from torch.utils.data.dataloader import _BaseDataLoaderIter
from torch.utils.data.distributed import DistributedSampler

from dpkit.runs.forked.group import ForkedGroup
from dpkit.runs.ranks.rank_group import CollectiveCall
from dpkit.runs.torchrun.watchers import Watcher
from dpkit.sim import places
from dpkit.sim.changes import replaced
from dpkit.sim.devices import simulation

MOST_WORKERS = 63  # of a loader, whose random numbers are looked at
MOST_LOADERS = 8  # whose first pass is kept
_MOST_KEPT = 100_000  # examples of a pass
SAME_AUGMENTATION = (
    "all ranks draw the same random numbers where they load examples, as for "
    "augmentation; torch.manual_seed(seed + rank), before the loader is "
    "iterated, draws others"
)


class Evaluation(NamedTuple):
    """A pass of a sampler that repeats examples, if nothing is trained."""

    examples: int
    given: int  # to all ranks
    line: str  # of the script


class PaddedEvaluation(Watcher):
    """A sum over examples of which a DistributedSampler repeats some.

    What is gathered may be cut to the right number, and is not looked at.
    """

    looks_for = "an evaluation that counts examples twice"

    def __init__(self, rank: int) -> None:
        super().__init__(rank)
        self._begun: Evaluation | None = None
        self._is_over = False
        self._calls: set[str] = set()

    def begin(self, stack: ExitStack) -> None:
        """Look at each pass of a ``DistributedSampler``."""
        iterate: Any = DistributedSampler.__iter__

        def watched(sampler: Any) -> Iterator[int]:
            self.end()
            examples = len(sampler.dataset)
            self._is_over = False
            self._calls.clear()
            if sampler.total_size > examples:
                line = places.here().described()
                given = sampler.total_size
                self._begun = Evaluation(examples, given, line)
            return self._until_end(iterate(sampler))

        change = replaced(DistributedSampler, "__iter__", watched)
        stack.callback(change.apply())
        backward: Any = torch.autograd.backward

        def trained(*args: Any, **kwargs: Any) -> None:
            self._begun = None  # it is no evaluation
            backward(*args, **kwargs)

        change = replaced(torch.autograd, "backward", trained)
        stack.callback(change.apply())

    def _until_end(self, indices: Iterator[int]) -> Iterator[int]:
        begun = self._begun
        yield from indices
        if self._begun is begun:
            self._is_over = True

    def called(
        self, group: ForkedGroup, call: CollectiveCall, tensors: Any
    ) -> None:
        """Note what is called after a pass has begun."""
        if not simulation.clock.hosts.in_backward:
            self._calls.add(call.kind)

    def end(self) -> None:
        """Judge the pass that has begun last."""
        begun = self._begun
        self._begun = None
        sums = self._calls & {"allreduce", "reduce"}
        gathers = self._calls & {"allgather", "gather"}
        if begun is None or not self._is_over or not sums or gathers:
            return
        self.findings.setdefault(
            f"an evaluation adds up {begun.given} examples of "
            f"{begun.examples}: a DistributedSampler repeats some, so that "
            "all ranks have as many; range(rank, len(data), world_size) "
            "repeats none",
            begun.line,
        )


class SameAugmentation(Watcher):
    """Random numbers that all ranks draw where they load examples.

    Each worker of a loader is a process. It writes a number for what it draws
    first into memory that this process has, too.
    """

    looks_for = "the same augmentation on all ranks"
    needs_ranks = True

    def __init__(self, rank: int) -> None:
        super().__init__(rank)
        self._is_data_parallel = False
        self._memory = mmap.mmap(-1, 8 * (1 + MOST_WORKERS))
        self._numbers = memoryview(self._memory).cast("Q")

    def begin(self, stack: ExitStack) -> None:
        """Look at wrappers, samplers and what loads examples."""
        iterate: Any = DistributedSampler.__iter__
        init: Any = DistributedDataParallel.__init__
        fetch: Any = _MapDatasetFetcher.fetch

        def sampled(sampler: Any) -> Any:
            self._is_data_parallel = True
            return iterate(sampler)

        def wrapped(model: Any, *args: Any, **kwargs: Any) -> None:
            init(model, *args, **kwargs)
            self._is_data_parallel = True

        def fetched(fetcher: Any, indices: Any) -> Any:
            worker = get_worker_info()
            row = 0 if worker is None else 1 + worker.id
            if row > MOST_WORKERS or self._numbers[row]:
                return fetch(fetcher, indices)
            before = _Drawn.now()
            found = fetch(fetcher, indices)
            self._numbers[row] = before.number(_Drawn.now())
            return found

        for owner, name, new in (
            (DistributedSampler, "__iter__", sampled),
            (DistributedDataParallel, "__init__", wrapped),
            (_MapDatasetFetcher, "fetch", fetched),
        ):
            stack.callback(replaced(owner, name, new).apply())

    def kept(self) -> dict[str, list[int]]:
        """Return a number for what each worker has drawn first."""
        if not self._is_data_parallel:
            return {}
        return {SAME_AUGMENTATION: [n for n in self._numbers if n]}


class _Drawn(NamedTuple):
    """The states from which random numbers are drawn."""

    seed: int  # of torch
    of_torch: bytes
    of_python: str
    of_numpy: str

    @classmethod
    def now(cls) -> "_Drawn":
        numpy = sys.modules.get("numpy")
        return cls(
            torch.initial_seed(),
            torch.get_rng_state().numpy().tobytes(),
            repr(random.getstate()),
            str(numpy.random.get_state()[1:3]) if numpy else "",
        )

    def number(self, after: "_Drawn") -> int:
        """Return a number for what was drawn since then; 0: nothing was.

        If a dataset seeds for each example, the numbers belong to the example.
        """
        drawn: list[object] = []
        if self.of_torch != after.of_torch and self.seed == after.seed:
            drawn.append(self.of_torch)
        for own, then in (
            (self.of_python, after.of_python),
            (self.of_numpy, after.of_numpy),
        ):
            if own != then:
                drawn += [own, then]
        return zlib.crc32(repr(drawn).encode()) if drawn else 0


class LoaderPass(NamedTuple):
    """The first pass of a loader through its examples."""

    indices: "array[int]"  # in the dataset that all others are parts of
    size: int  # of that dataset
    num_batch: int  # examples of a batch, which may be filled up
    is_whole: bool  # whether the rank goes through all
    is_part: bool  # whether some of that dataset may be for another purpose
    line: str
    state: list[str]  # "over" in the end


class SharedExamples(Watcher):
    """Examples that several ranks are given in one pass, and others none."""

    looks_for = "examples that several ranks take in one pass"
    needs_ranks = True

    def __init__(self, rank: int) -> None:
        super().__init__(rank)
        self._passes: list[LoaderPass] = []
        self._of: WeakKeyDictionary[Any, LoaderPass] = WeakKeyDictionary()
        self._loaders: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        self._is_data_parallel = False

    def begin(self, stack: ExitStack) -> None:
        """Look at wrappers, samplers and the indices that loaders take."""
        init: Any = _BaseDataLoaderIter.__init__
        follow: Any = _BaseDataLoaderIter._next_index
        wrap: Any = DistributedDataParallel.__init__

        def begun(iterator: Any, loader: Any) -> None:
            init(iterator, loader)
            self._begin_pass(iterator, loader)

        def followed(iterator: Any) -> Any:
            taken = self._of.get(iterator)
            if taken is None:
                return follow(iterator)
            try:
                found = follow(iterator)
            except StopIteration:
                taken.state.append("over")
                raise
            self._take(iterator, taken, found)
            return found

        def wrapped(model: Any, *args: Any, **kwargs: Any) -> None:
            wrap(model, *args, **kwargs)
            self._is_data_parallel = True

        for owner, name, new in (
            (_BaseDataLoaderIter, "__init__", begun),
            (_BaseDataLoaderIter, "_next_index", followed),
            (DistributedDataParallel, "__init__", wrapped),
        ):
            stack.callback(replaced(owner, name, new).apply())

    def _begin_pass(self, iterator: Any, loader: Any) -> None:
        """Begin to keep the indices of a loader, if it has not been seen."""
        sampler = loader.sampler
        if loader in self._loaders or len(self._passes) == MOST_LOADERS:
            return
        if isinstance(sampler, DistributedSampler):
            self._is_data_parallel = True
        self._loaders[loader] = len(self._passes)
        root = loader.dataset
        while isinstance(root, Subset):
            root = root.dataset
        if not (hasattr(root, "__len__") and hasattr(sampler, "__len__")):
            return
        by_chance = isinstance(sampler, RandomSampler) and (
            sampler.replacement or sampler.num_samples < len(loader.dataset)
        )
        is_plain = type(loader.batch_sampler) in (BatchSampler, type(None))
        filled = 1 if is_plain else loader.batch_size or 1
        self._of[iterator] = taken = LoaderPass(
            indices=array("q"),
            size=len(root),
            num_batch=filled,
            is_whole=by_chance or len(sampler) >= len(root),
            is_part=root is not loader.dataset,
            line=places.here().described(),
            state=[],
        )
        self._passes.append(taken)

    def _take(self, iterator: Any, taken: LoaderPass, found: Any) -> None:
        """Keep indices, as those of the dataset of which all are parts."""
        indices = found if isinstance(found, list) else [found]
        data = iterator._dataset
        while isinstance(data, Subset):
            indices = [data.indices[i] for i in indices]
            data = data.dataset
        if len(taken.indices) < _MOST_KEPT and all(
            isinstance(i, int) for i in indices
        ):
            taken.indices.extend(indices)

    def for_comparison(self) -> list[LoaderPass]:
        """Return the first pass of each loader."""
        return self._passes if self._is_data_parallel else []

    @classmethod
    def compare(cls, kept: Mapping[int, list[LoaderPass]]) -> list[str]:
        """Return a sentence for each loader that shares examples wrongly."""
        sentences = map(_shared, zip(*kept.values()))
        return [sentence for sentence in sentences if sentence]


def _shared(passes: Sequence[LoaderPass]) -> str:
    """Return what is wrong in a pass of a loader on all ranks."""
    first = passes[0]
    if any(one.size != first.size or one.is_whole for one in passes):
        return ""
    # Ranks that share a model have the same examples on purpose.
    different = {tuple(one.indices) for one in passes}
    if any(len(set(one)) < len(one) for one in different):
        return ""  # they are drawn with repetitions
    if len(set(map(frozenset, different))) < len(different):
        return ""  # the same examples in another order
    times = Counter(i for one in different for i in one)
    repeated = sum(count - 1 for count in times.values())
    padding = len(passes) * first.num_batch - 1
    if repeated <= padding:
        return ""
    several = sum(count > 1 for count in times.values())
    fault = f"of {first.size} examples, {several} are given to several ranks"
    if all(one.state and not one.is_part for one in passes):
        fault += f" and {first.size - len(times)} to none"
    return (
        f"{fault}, in the first pass of a loader ({first.line}): ranks "
        "shuffle or split the data by different seeds, or by different epochs"
    )


OF_EXAMPLES: list[type[Watcher]] = [
    *(PaddedEvaluation, SameAugmentation, SharedExamples),
]
