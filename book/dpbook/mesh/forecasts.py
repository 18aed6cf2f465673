"""What the planner says of a layout that the engines have taken a step of."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from dpbook.mesh.layouts import ORDER, Layout
from dpbook.mesh.model import Sizes
from dpbook.mesh.runs import LARGE, NODES, NUM_ROWS
from dpbook.planner import layouts as planner
from dpbook.planner.case import Case
from dpbook.planner.networks import Planned
from dpkit.sim.hardware import cluster


class Forecast(NamedTuple):
    """A step, as the planner sees it."""

    seconds: float
    num_bytes: float  #: on the fullest device


def forecast(
    layout: Layout,
    sizes: Sizes = LARGE,
    num_rows: int = NUM_ROWS,
    plain: bool = False,
) -> Forecast | None:
    """Return what the planner says, or None if it cannot be asked.

    It knows no rings, as its devices gather keys and values; no replicas of
    shards; and no other order of the mesh. Products keep the whole rate of the
    preset, as on the simulated clock. With a pipeline ``fully_shard`` leaves
    parameters whole between forward and backward, which is ZeRO-1; without one
    it is ZeRO-3.

    Args:
        layout: How the model is cut.
        sizes: Those of the model.
        num_rows: Sequences in the batch, over all ranks.
        plain: Whether the planner counts the kernels, copies and values of
            plain modules and engines, and not those of fused kernels.

    Example:
        >>> for plain in False, True:
        ...     found = forecast(Layout(fsdp=8), plain=plain)
        ...     print(f"{1e3 * found.seconds:.0f} ms,",
        ...           f"{found.num_bytes / 1e9:.1f} GB")
        112 ms, 6.1 GB
        142 ms, 7.0 GB
        >>> print(forecast(Layout(cp=2, fsdp=4)))
        None
    """
    can = layout.cp == layout.replicate == 1 and layout.order == ORDER
    if not can or layout.cut:
        return None
    data = layout.ddp * layout.fsdp
    planned = planner.Layout(
        data=data,
        tensor=layout.tp,
        pipeline=layout.pp,
        micro_batch=num_rows // data // layout.micro_batches,
        recompute="full" if layout.recompute else "none",
        zero=0 if layout.fsdp == 1 else 3 if layout.pp == 1 else 1,
        gathered="kept" if plain else "again",
    )
    case = Case(
        network_of(sizes, plain),
        num_rows,
        cluster(layout.num_ranks, **NODES),
        sustained=1.0,
        kernels="plain" if plain else "fused",
    )
    return Forecast(
        seconds=case.seconds(planned).total,
        num_bytes=case.memory(planned).total,
    )


def forecasts(
    rows: Iterable[Mapping[str, Any]], plain: bool = False
) -> dict[str, Forecast]:
    """Return what the planner says of the layouts that it knows, by name.

    Args:
        rows: Layouts of the record.
        plain: As for :func:`forecast`.
    """
    found = {}
    for row in rows:
        settings = row["layout"] | {"order": tuple(row["layout"]["order"])}
        planned = forecast(Layout(**settings), plain=plain)
        if planned is not None:
            found[row["name"]] = planned
    return found


def network_of(sizes: Sizes, plain: bool = False) -> Planned:
    """Return the model of these sizes as the planner knows models."""
    return Planned(
        layers=sizes.blocks,
        hidden=sizes.width,
        heads=sizes.heads,
        vocabulary=sizes.vocabulary,
        sequence=sizes.length,
        feed_forward=sizes.inner,
        key_heads=sizes.key_heads,
        gated=True,
        tied=False,
        dropout=False,
        plain=plain,
    )
