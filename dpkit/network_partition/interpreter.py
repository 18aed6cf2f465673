"""Do the actions of any schedule.

An action ``sKm`` is named by its stage, its kind and its micro-batch. Two
stages and one micro-batch, with what lies in a parcel after each action::

    0F0    stage 0 takes inputs[0]         1F0: y
    1F0    stage 1 opens the parcel        nothing; losses[0] is known
    1B0    stage 1 begins with 1           0B0: dx
    0B0    stage 0 opens the parcel        nothing; all gradients are there

B makes all gradients; I makes those of the inputs alone, W those of the
weights, later. Where a tuple passes, each of its tensors has a parcel.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from dpkit.network_partition.stage import Layer, Stage
from dpkit.streams import Channel, Parcel
from dpkit.theory.pipelines.actions import Action


@dataclass
class Interpreter:
    """One step of a pipeline: what is on its way, and the losses.

    ``channels[s, t]`` leads from stage s to its neighbour t. ``inputs`` are
    the micro-batches, on the device of the first stage. ``ends`` is what
    follows the last stage, for each micro-batch: its loss.
    """

    stages: Sequence[Stage]
    channels: Mapping[tuple[int, int], Channel]
    inputs: Sequence[Tensor]
    ends: Sequence[Layer]
    losses: dict[int, Tensor] = field(default_factory=dict)
    # What was sent to a stage, by the action that waits for it.
    _parcels: dict[Action, Any] = field(default_factory=dict)

    def do(self, action: Action) -> None:
        """Do one action; what it needs has been done."""
        if action.kind == "F":
            self._forward(action)
        elif action.kind == "W":
            self.stages[action.stage].backward_weights(action.micro_batch)
        else:
            self._backward(action)

    def _forward(self, action: Action) -> None:
        s, _, m = action
        x = self._opened(action) if s else self.inputs[m]
        if s < len(self.stages) - 1:
            y = self.stages[s].forward(m, x)
            self._send(y, action, s + 1)
        else:
            self.losses[m] = self.stages[s].forward(m, x, self.ends[m])

    def _backward(self, action: Action) -> None:
        s, kind, m = action
        stage, last = self.stages[s], s == len(self.stages) - 1
        dy = (
            [torch.ones_like(self.losses[m])] if last else self._opened(action)
        )
        run = stage.backward if kind == "B" else stage.backward_inputs
        dx = run(m, dy)
        if s:
            self._send(dx, action, s - 1)

    def _send(self, x: Any, action: Action, target: int) -> None:
        """Send to another stage what the same action there waits for."""
        channel = self.channels[action.stage, target]
        sent = tree_map_only(Tensor, channel.send, x)  # no gradient: None
        self._parcels[action._replace(stage=target)] = sent

    def _opened(self, action: Action) -> Any:
        return tree_map_only(Parcel, Parcel.open, self._parcels.pop(action))
