"""The checks of the exercises on the three ways to split."""

from dpbook.exercises.verdict import Answer, require_at_most
from dpbook.network_partitioning.runs import pipeline_step
from dpbook.splitting.grid import grid
from dpbook.splitting.three_ways import (
    Way,
    cost,
    layer_partitioning,
    network_partitioning,
    traced,
)


def check_fast_and_small(answer: Answer) -> None:
    """A pipeline on PCIe: 85 ms, and 60 MB of activations on a device."""
    schedule, m = answer()
    step = pipeline_step(
        4,
        schedule,
        num_micro_batches=m,
        rows=4096,
        width=4096,
        link="pcie3",
        hosts="per_device",
    )
    case = f"{schedule}, {m} micro-batches"
    held = cost(step).activation_bytes
    require_at_most(
        1e3 * step.makespan, most=85, unit="ms", start=f"{case}: it takes"
    )
    require_at_most(held / 1e6, most=60, unit="MB", start=f"{case}: it holds")


def check_two_nodes(answer: Answer) -> None:
    """Two nodes of four devices: 42 ms, and 300 MB between the nodes."""
    inside, num_groups, neighbours = answer()
    ways: dict[str, Way] = {
        "layer": layer_partitioning,
        "network": network_partitioning,
    }
    way = grid(ways[inside], num_groups, neighbours)
    step = traced(
        way,
        num_devices=8,
        rows=16384,
        width=2048,
        ranks_per_node=4,
        network="ethernet100",
    )
    sent = sum(
        span.num_bytes
        for span in step.spans
        if span.name.startswith("copy to")
        and _node(span.name) != _node(span.device)
    )
    case = f"{inside}, {num_groups} groups, neighbours={neighbours}"
    require_at_most(
        1e3 * step.makespan, most=42, unit="ms", start=f"{case}: it takes"
    )
    require_at_most(sent / 1e6, most=300, unit="MB", start=f"{case}: it sends")


def _node(name: str) -> int:
    return int(name.split(":")[1]) // 4
