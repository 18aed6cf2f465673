"""A step of training on a layout, and checkpoints that any layout reads."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from os import PathLike
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    get_state_dict,
    set_state_dict,
)
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.parallel import loss_parallel
from torch.nn.parallel import DistributedDataParallel

from dpbook.mesh.engines import build, cut_sequences
from dpbook.mesh.layouts import Layout, make_mesh, own_rows, place_in
from dpbook.mesh.model import Sizes, loss_of
from dpkit.processes import rank_device


class Trainer:
    """A rank's part of a model on a layout, which learns by AdamW.

    Args:
        sizes: Those of the whole model.
        layout: How it is cut, over all ranks of this launch.
        whole: The values of all parameters, by name. None: there are none.
        dtype: Of the parameters.
        clip: The largest norm of all gradients together. 0: any.
        lr: The learning rate.
    """

    def __init__(
        self,
        sizes: Sizes,
        layout: Layout,
        whole: Mapping[str, Tensor] | None,
        dtype: torch.dtype = torch.float64,
        clip: float = 0.0,
        lr: float = 1e-3,
    ) -> None:
        self.layout = layout
        self.clip = clip
        self.mesh = make_mesh(layout)
        self.device = rank_device()
        self.model = build(sizes, layout, self.mesh, dtype, whole)
        self.is_first = place_in(self.mesh, "pp") == 0
        self.is_last = place_in(self.mesh, "pp") == layout.pp - 1
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr)
        self.module: nn.Module = self.model
        if layout.ddp > 1:
            self.module = DistributedDataParallel(self.model)
        if layout.pp > 1:
            stage = PipelineStage(
                self.model,
                place_in(self.mesh, "pp"),
                layout.pp,
                self.device,
                group=self.mesh.get_group("pp"),
            )
            self.pipeline = Schedule1F1B(
                stage, layout.micro_batches, loss_fn=self.loss
            )

    def step(self, tokens: Tensor, targets: Tensor) -> Tensor | None:
        """Learn from a whole batch (b, s), equal on all ranks.

        Returns:
            The mean loss of this rank's rows and positions; None on a rank
            that has no last stage.
        """
        self.optimizer.zero_grad()
        loss = self.compute_gradients(tokens, targets)
        if self.clip:
            self.clip_gradients()
        self.optimizer.step()
        return loss

    def compute_gradients(
        self, tokens: Tensor, targets: Tensor
    ) -> Tensor | None:
        """Run forward and backward; return as :meth:`step` does."""
        rows = own_rows(self.layout, self.mesh, len(tokens))
        x, y = (t[rows].to(self.device).clone() for t in (tokens, targets))
        with self._engines_on(x, y):
            if self.layout.pp > 1:
                return self._through_stages(x, y)
            with self._in_16_bits():
                loss = self.loss(self.module(x), y)
            loss.backward()
            return whole_tensor(loss)

    def loss(self, scores: Tensor, targets: Tensor) -> Tensor:
        """Return the mean loss of scores (b, s, vocabulary).

        With tensor parallelism a rank has the scores of some words. They are
        not gathered: three numbers of each position are summed instead.
        """
        if self.layout.tp > 1:
            scores = DTensor.from_local(scores, self.mesh["tp"], [Shard(-1)])
        return loss_of(scores, targets)

    def clip_gradients(self) -> Tensor:
        """Scale gradients so that their norm is ``clip`` at most; return it.

        The norm is that of all gradients of the whole model: over the shards,
        which DTensor knows of, and over the stages, of which it does not.
        """
        parameters = list(self.model.parameters())
        grads = [p.grad for p in parameters if p.grad is not None]
        norm = whole_tensor(nn.utils.get_total_norm(grads))
        if self.layout.pp > 1:
            squares = norm.square()
            dist.all_reduce(squares, group=self.mesh.get_group("pp"))
            norm = squares.sqrt()
        nn.utils.clip_grads_with_norm_(parameters, self.clip, norm)
        return norm

    @contextmanager
    def _engines_on(self, x: Tensor, y: Tensor) -> Iterator[None]:
        """Turn on what holds for a forward and its backward."""
        # The ring first: as it begins and ends, it sets all rules of DTensor,
        # of which those of the loss are some.
        with ExitStack() as stack:
            if self.layout.cp > 1:
                ring = self.mesh["cp"]
                rotary = self.model.rotary
                stack.enter_context(cut_sequences(rotary, ring, x, y))
            if self.layout.tp > 1:
                stack.enter_context(loss_parallel())
            yield

    def _in_16_bits(self) -> Any:
        """Return a block in which DDP computes in bfloat16, if it should.

        ``fully_shard`` does so by its policy.
        """
        if self.layout.ddp > 1 and self.layout.bfloat16:
            return torch.autocast(self.device.type, torch.bfloat16)
        return nullcontext()

    def _through_stages(self, x: Tensor, y: Tensor) -> Tensor | None:
        given = [x] if self.is_first else []
        if not self.is_last:
            self.pipeline.step(*given)
            return None
        losses: list[Tensor] = []
        self.pipeline.step(*given, target=y, losses=losses)
        return torch.stack([whole_tensor(loss) for loss in losses]).mean()

    def state(self) -> dict[str, Any]:
        """Return parameters and Adam's state, by the names of the model."""
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer}

    def save(self, folder: str | PathLike[str]) -> None:
        """Write a checkpoint; each rank writes what it alone has."""
        save(self.state(), checkpoint_id=folder)

    def load(self, folder: str | PathLike[str]) -> None:
        """Read a checkpoint that any layout of the same model has written."""
        state = self.state()
        load(state, checkpoint_id=folder)
        set_state_dict(
            self.model,
            self.optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
        )


def whole_tensor(x: Tensor) -> Tensor:
    """Return a tensor without its gradient, whole if it lies in shards."""
    with torch.no_grad():
        return x.full_tensor() if isinstance(x, DTensor) else x.detach()
