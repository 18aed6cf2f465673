"""Do the actions of a schedule, whichever it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from dpkit.channels import Channel, Parcel
from dpkit.network_partition.stage import Layer, Stage
from dpkit.theory.pipelines.actions import Action


class Interpreter:
    """One step: what is on its way, and what it came to.

    Args:
        stages: The stages.
        channels: The way from each stage to the next and to the one before,
            by both numbers.
        inputs: The micro-batches, on the device of the first stage.
        ends: What follows the last stage, for each micro-batch: its loss.

    Attributes:
        losses: The loss of each micro-batch, on the device of the last stage.
    """

    def __init__(
        self,
        stages: Sequence[Stage],
        channels: Mapping[tuple[int, int], Channel],
        inputs: Sequence[Tensor],
        ends: Sequence[Layer],
    ) -> None:
        self.stages, self.channels = stages, channels
        self.inputs, self.ends = inputs, ends
        self.losses: dict[int, Tensor] = {}
        # What comes in, by the action that waits for it.
        self._parcels: dict[Action, Parcel] = {}

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
        x = self._parcels.pop(action).open() if s else self.inputs[m]
        if s < len(self.stages) - 1:
            y = self.stages[s].forward(m, x)
            self._send(y, action, s + 1)
        else:
            self.losses[m] = self.stages[s].forward(m, x, self.ends[m])

    def _backward(self, action: Action) -> None:
        s, kind, m = action
        stage, dy = self.stages[s], None
        if s == len(self.stages) - 1:
            dy = torch.ones_like(self.losses[m])
        elif action in self._parcels:  # not if nothing depends on the output
            dy = self._parcels.pop(action).open()
        run = stage.backward if kind == "B" else stage.backward_inputs
        dx = run(m, dy)
        if s and dx is not None:
            self._send(dx, action, s - 1)

    def _send(self, x: Tensor, action: Action, target: int) -> None:
        """Send to another stage what the same action there waits for."""
        channel = self.channels[action.stage, target]
        self._parcels[action._replace(stage=target)] = channel.send(x)
