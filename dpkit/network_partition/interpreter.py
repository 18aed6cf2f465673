"""Do the actions of any schedule.

An action ``sKm`` is named by its stage, its kind and its micro-batch. Two
stages and one micro-batch, with the tensor that is on its way after each::

    0F0    stage 0 takes inputs[0]         1F0: y
    1F0    stage 1 waits for it            nothing; losses[0] is known
    1B0    stage 1 begins with 1           0B0: dx
    0B0    stage 0 waits for it            nothing; all gradients are there

B makes all gradients; I makes those of the inputs alone, W those of the
weights, later. Where a tuple passes, each of its tensors is sent by itself.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from dpkit.network_partition.stage import Gradients, Layer, Stage, each
from dpkit.schedules import BACKWARD, FORWARD, WEIGHT_GRADIENTS, Action
from dpkit.streams import Channel, PendingTensor


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
    _pending: dict[Action, Any] = field(default_factory=dict)

    def do(self, action: Action) -> None:
        """Do one action; what it needs has been done."""
        if action.kind == FORWARD:
            self._forward(action)
        elif action.kind == WEIGHT_GRADIENTS:
            self.stages[action.stage].backward_weights(action.micro_batch)
        else:
            self._backward(action)

    def _forward(self, action: Action) -> None:
        s, _, m = action
        x = self._received(action) if s else self.inputs[m]
        if s < len(self.stages) - 1:
            y = self.stages[s].forward(m, x)
            self._send(y, action, s + 1)
        else:
            self.losses[m] = self.stages[s].forward(m, x, self.ends[m])

    def _backward(self, action: Action) -> None:
        s, kind, m = action
        stage = self.stages[s]
        dy: Gradients
        if s == len(self.stages) - 1:
            dy = [torch.ones_like(self.losses[m])]
        else:
            dy = self._received(action)
        run = stage.backward if kind == BACKWARD else stage.backward_inputs
        dx = run(m, dy)
        if s:
            self._send(dx, action, s - 1)

    def _send(self, x: Any, action: Action, target: int) -> None:
        """Send to another stage what the same action there waits for."""
        channel = self.channels[action.stage, target]
        sent = each(Tensor, channel.send, x)  # no gradient: None
        self._pending[action._replace(stage=target)] = sent

    def _received(self, action: Action) -> Any:
        sent = self._pending.pop(action)
        return each(PendingTensor, PendingTensor.wait, sent)
