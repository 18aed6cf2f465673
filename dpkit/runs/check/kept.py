"""What a rank keeps of a run, to be compared with other ranks and runs."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from dpkit.runs.check.data_of_samplers import DataOfSamplers
from dpkit.runs.check.digests import Digest, Digests, StepDigests
from dpkit.runs.check.model_facts import ModelFacts, StepFacts
from dpkit.runs.torchrun.watchers import Watcher


class Kept(NamedTuple):
    """What one rank has kept."""

    digests: list[StepDigests]  # of each step
    facts: list[StepFacts]  # of each step
    states: int  # parameters that optimizers had a state of at the start
    batches: list[int]  # how many examples the model got in each forward
    rounding: float  # the relative rounding of the least exact numbers
    data: list[int]  # by which the datasets of samplers are known again
    at_end: dict[str, Digest]  # parameters, where the script has ended
    is_wrapped: bool = False  # whether a wrapped model's forward was called
    is_flat: bool = False  # whether parameters are parts of flat shards
    averaged: Sequence[str] = ()  # parameters: by the optimizer's own step
    sends_in_forward: bool = False  # whether layers of the script do
    parts: Sequence[str] = ()  # parameters that are parts of larger ones


class Keeping:
    """Watches a rank, and keeps what is to be compared.

    Args:
        rank: The number of the rank.
        at_end: As of :class:`Digests`.
    """

    def __init__(
        self,
        rank: int,
        at_end: Callable[[int, dict[str, torch.Tensor]], None],
    ) -> None:
        self._model = ModelFacts(rank)
        self._digests = Digests(
            rank, self._model.name_of, self._model.take_own, at_end
        )
        self._data = DataOfSamplers(rank)
        self.watchers: list[Watcher] = [
            *(self._model, self._digests, self._data)
        ]

    def kept(self) -> Kept:
        """Return what was kept."""
        return Kept(
            digests=self._digests.steps,
            facts=self._model.steps,
            states=self._digests.states,
            batches=self._model.batches,
            rounding=self._model.rounding,
            data=self._data.numbers,
            at_end=self._digests.at_end(),
            is_wrapped=self._model.is_wrapped,
            is_flat=self._model.is_flat,
            sends_in_forward=self._model.sends_in_forward,
        )
