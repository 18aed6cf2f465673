"""A network in stages on several devices, and a schedule that drives them."""

from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from operator import methodcaller

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from dpkit.arguments import (
    Devices,
    check_kind,
    check_labels_of,
    check_shaped,
    device_list,
)
from dpkit.losses import (
    Loss,
    check_labels,
    check_mean,
    check_one_number,
    tried_as_mean,
)
from dpkit.machine import random_states_kept
from dpkit.network_partition.interpreter import Interpreter
from dpkit.network_partition.stage import Layer, Stage, layers_of
from dpkit.network_partition.untie import gradients_summed, untie
from dpkit.schedules import (
    BACKWARD,
    FORWARD,
    INPUT_GRADIENTS,
    WEIGHT_GRADIENTS,
    Action,
    Schedule,
    by_name,
    owners,
    parse,
    times,
)
from dpkit.schedules.check import check
from dpkit.streams import Channel
from dpkit.units import check_flag, check_whole

TICKS = {
    FORWARD: 1,
    BACKWARD: 2,
    INPUT_GRADIENTS: 1,
    WEIGHT_GRADIENTS: 1,
}


class Pipeline(nn.Module):
    """A network whose stages lie on several devices.

    The layers are moved to their devices, as by ``Module.to``; one that lies
    on several devices already stays. A layer that shares a parameter with an
    earlier stage is copied, and the gradients of such ``copies`` are summed:
    make the optimizer from ``pipeline.parameters()``, and it keeps them
    equal. Batch norm takes the statistics of each micro-batch, and counts it
    twice with ``recompute``; :class:`~dpkit.batch_norm.DeferredBatchNorm`
    tracks those of whole batches. A layer that works in place cannot be the
    first of a stage. Between stages passes a tensor, or a tuple of tensors:
    a skip is carried past the layers, as their ``nn.Sequential`` would.

    Args:
        stages: In order, such as :func:`dpkit.split_layers` gives them.
        devices: Stage s lies on device s, with interleaving on device s
            modulo their number.
        schedule: "naive", "gpipe", "1f1b", "interleaved", "zb-h1", or a list
            of actions for each device, or its text: a line for each.
        num_micro_batches: How many micro-batches a batch is cut into; None
            means as many as there are devices, or as a list of actions names.
        recompute: Whether a stage keeps its input alone and runs forward
            again before backward.

    Raises:
        ValueError: the stages do not fit the devices or the schedule, the
            schedule is wrong, or two stages share a buffer.

    Example:
        >>> model = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))
        >>> pipeline = dpkit.Pipeline(
        ...     dpkit.split_layers(model, 2), dpkit.devices(2, kind="sim"),
        ...     schedule="gpipe", num_micro_batches=4,
        ... )
        >>> X, y = torch.ones(7, 3), torch.zeros(7, 2)
        >>> loss = pipeline.forward_backward(X, y, nn.MSELoss())
        >>> [tuple(p.grad.shape) for p in pipeline.parameters()]
        [(5, 3), (5,), (2, 5), (2,)]
        >>> pipeline(X).device, loss.device
        (device(type='sim', index=1), device(type='sim', index=1))
    """

    def __init__(
        self,
        stages: Sequence[nn.Module],
        devices: Devices,
        schedule: str | Schedule = "1f1b",
        num_micro_batches: int | None = None,
        recompute: bool = False,
    ) -> None:
        super().__init__()
        devices = device_list(devices, least=1)
        stages = _modules(stages)
        check_flag("recompute", recompute)
        self.schedule = _schedule(
            schedule,
            num_stages=len(stages),
            num_devices=len(devices),
            m=num_micro_batches,
        )
        every = [action for row in self.schedule for action in row]
        stages, self.copies = untie(stages)
        owner = owners(self.schedule)
        self.devices = [devices[owner[s]] for s in range(len(stages))]
        self.stages = nn.ModuleList(map(_place, stages, self.devices))
        split = any(action.kind == INPUT_GRADIENTS for action in every)
        firsts = accumulate([0, *(len(layers_of(s)) for s in stages)])
        self._stages = [
            Stage(stage, device, first, split=split, recompute=recompute)
            for stage, device, first in zip(stages, self.devices, firsts)
        ]
        self._channels = _channels(self.devices)
        self._has_run = False
        # Issued in the order of time, so that no device waits for Python:
        # gpipe, 2 stages, 2 micro-batches  0F0 0F1 1F0 1F1 1B0 0B0 1B1 0B1
        start = times(self.schedule, TICKS)
        self._order = sorted(every, key=lambda action: start[action])

    @property
    def num_micro_batches(self) -> int:
        """How many micro-batches the schedule is for."""
        return 1 + max(action.micro_batch for action in self._order)

    @property
    def most_in_flight(self) -> list[int]:
        """The most micro-batches that each stage has kept at once."""
        return [stage.most_kept for stage in self._stages]

    def forward(self, X: Tensor) -> Tensor:
        """Run the whole batch, shape (b, …), through all stages in turn.

        The outputs lie on the device of the last stage.
        """
        for stage, device in zip(self.stages, self.devices):
            X = stage(tree_map(methodcaller("to", device), X))
        return X

    def forward_backward(self, X: Tensor, y: Tensor, loss_fn: Loss) -> Tensor:
        """Run a batch through the schedule; leave gradients in the stages.

        Return the loss, of no dimensions, on the device of the last stage.
        The batch is cut as by ``tensor_split``: the first micro-batches have
        an example more. Each loss is weighted by its number of examples, so
        loss and gradients are those of the whole batch. Gradients are added
        to those that are there. What layers draw at random depends on the
        layer, the micro-batch and PyTorch's seed alone.

        Args:
            X: The examples, shape (b, …), on any device.
            y: The labels, shape (b, …), on any device.
            loss_fn: ``loss_fn(outputs, labels)``, a mean over examples, in
                which all count alike: no class weights, none left out. This
                is checked on the first batch, and labels on the CPU in each.

        Raises:
            ValueError: ``X`` and ``y`` differ in length, there are fewer
                examples than micro-batches, or the loss is no such mean.
        """
        self._check_batch(X, y)
        check_mean(loss_fn)
        # To look at labels on another device, Python would wait for it.
        if not self._has_run or y.device.type == "cpu":
            check_labels(loss_fn, y)
        if not self._has_run:
            loss_fn = tried_as_mean(loss_fn)
        m = self.num_micro_batches
        X = X.to(self.devices[0])
        y = y.to(self.devices[-1])
        ends = [_end(part, len(y), loss_fn) for part in y.tensor_split(m)]
        run = Interpreter(
            self._stages, self._channels, X.tensor_split(m), ends
        )
        try:
            with gradients_summed(self.copies):
                self._run(run)
            self._has_run = True
        finally:
            for stage in self._stages:
                stage.forget()
        return torch.stack(list(run.losses.values())).sum()

    def _run(self, run: Interpreter) -> None:
        seed = int(torch.randint(2**62, (), device="cpu"))
        with random_states_kept(self.devices), torch.enable_grad():
            for stage in self._stages:
                stage.seed = seed
            for action in self._order:
                run.do(action)

    def _check_batch(self, X: Tensor, y: Tensor) -> None:
        check_labels_of(X, y)
        if len(X) < self.num_micro_batches:
            raise ValueError(
                f"fewer examples than micro-batches (examples: {len(X)}, "
                f"micro-batches: {self.num_micro_batches})"
            )


def _modules(stages: Sequence[nn.Module]) -> list[nn.Module]:
    """Return stages as a list, in which each is a module."""
    if not isinstance(stages, Iterable):
        raise TypeError(
            f"not a list of stages (type: {type(stages).__name__}); "
            "dpkit.split_layers makes one"
        )
    found = list(stages)
    for s, stage in enumerate(found):
        check_shaped(f"stages[{s}]", stage)
    return found


def _schedule(
    schedule: str | Schedule,
    *,
    num_stages: int,
    num_devices: int,
    m: int | None,
) -> Schedule:
    """Return a schedule by its name, its text or its actions; check it."""
    if m is not None:
        check_whole("num_micro_batches", m)
    if isinstance(schedule, str) and not any(map(str.isspace, schedule)):
        m = num_devices if m is None else m
        return by_name(
            schedule,
            num_devices=num_devices,
            num_stages=num_stages,
            num_micro_batches=m,
        )
    if isinstance(schedule, str):
        schedule = parse(schedule)
    check_kind("schedule", schedule, Sequence)
    for device, row in enumerate(schedule):
        check_kind(f"schedule[{device}]", row, Sequence)
        for number, action in enumerate(row):
            check_kind(f"schedule[{device}][{number}]", action, Action)
    if len(schedule) != num_devices:
        raise ValueError(
            "the schedule is not for so many devices (lists of actions: "
            f"{len(schedule)}, devices: {num_devices})"
        )
    if not any(schedule):
        raise ValueError(
            f"the schedule has no actions (lists of actions: {num_devices})"
        )
    check(schedule, num_stages, m)
    return schedule


def _place(stage: nn.Module, device: torch.device) -> nn.Module:
    """Move layers to their device, but those that lie on several."""
    # Chosen before any is moved: with it goes a parameter that others share.
    modules = [la for la in layers_of(stage) if isinstance(la, nn.Module)]
    for layer in [module for module in modules if len(_devices(module)) < 2]:
        layer.to(device)
    found = _devices(stage)
    if found and device not in found:
        raise ValueError(
            "no tensor of a stage lies on its device (device: "
            f"{device}, its layers': {', '.join(sorted(map(str, found)))})"
        )
    return stage


def _devices(module: nn.Module) -> set[torch.device]:
    return {t.device for t in (*module.parameters(), *module.buffers())}


def _channels(devices: Devices) -> dict[tuple[int, int], Channel]:
    # Three stages: 0 → 1, 1 → 0, 1 → 2 and 2 → 1.
    found = {}
    for s, (here, there) in enumerate(pairwise(devices)):
        found[s, s + 1] = Channel(here, there)
        found[s + 1, s] = Channel(there, here)
    return found


def _end(y: Tensor, total: int, loss_fn: Loss) -> Layer:
    """Return what follows the last stage: a micro-batch's part of the loss."""

    def end(outputs: Tensor) -> Tensor:
        loss = loss_fn(outputs, y)
        check_one_number(loss)
        # 7 examples in 3 micro-batches: the means count 3/7, 2/7 and 2/7.
        return loss * (len(y) / total)

    return end
