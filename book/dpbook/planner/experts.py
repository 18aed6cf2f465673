"""What a device computes, keeps and sends for a layer of experts.

In place of one MLP a layer has E experts, and a token goes to k of them. The
devices of a stage, d · c · t of them, stand in groups of e · u. A group has
all experts once: e sets of u devices have E/e experts each, and the u devices
of a set share an expert as a tensor group shares an MLP. Devices of the same
place in their groups have the same experts: they add up their gradients, and
ZeRO divides over them. Eight devices of a stage, d = 4, t = 2, eight
experts::

    devices            0     1     2     3     4     5     6     7
    attention          0a    0b    1a    1b    2a    2b    3a    3b
    e = 4, u = 1       0,1   2,3   4,5   6,7   0,1   2,3   4,5   6,7
    e = 4, u = 2       0,1a  0,1b  2,3a  2,3b  4,5a  4,5b  6,7a  6,7b

(Attention: the replica, and its half of the heads. Below: which experts.)

Each device has n tokens, a t-th of those of its replica. All experts get
equally many, so that a device computes k · n · u rows, with a u-th of each
expert. Messages are those of Megatron-LM. Twice forward, and twice backward,
rows go to other devices; where u devices share an expert, they gather all of
their rows for it, and scatter the sums that it gives::

    h  values of a token           one device, forward
    k · n · h values               to the devices of the experts (all-to-all)
    u · k · n · h                  gathered, summed and scattered, if u > 1
    k · n · h                      back to the devices of the tokens

    8x22B: h = 6144, k = 2; 4,096 tokens, t = 2, so n = 2048
    e = 8, u = 1    50 MB, of which 7/8 leave the device; 4 times a layer
    e = 4, u = 2    50 MB, of which 3/4 leave it; besides 101 MB are gathered
                    or scattered by two, each 4 times

A device keeps for backward the rows that came and what the experts gave for
its own tokens, 2h each for each choice, and what k MLPs keep. Kernels put rows
in order, and add up what comes. Only a device with several experts has
to order by expert, and it does so with the rows that it has gathered::

    values moved forward, for a token
      ordered by device             2kh
      ordered by expert, and back   2ukh + 2ukh, if E/e > 1
      added up                      (k + 1)h

    h = 6144, k = 2, e = 8, u = 1: of eight experts 7h, of 64 experts 15h

Assumed: the products of all experts of a device are one kernel each; nothing
hides the messages; the router's loss and its counts take no time.

Not modelled: experts that are not equally busy, experts that all tokens meet,
tokens that are dropped.

Source:
    D. Liu et al., MoE Parallel Folding, 2025, arXiv:2504.14960, for the groups
    and the order of messages.
"""

from dpbook.formulas.transformer import Transformer
from dpbook.planner.layouts import Layout
from dpkit.plans import even_seconds
from dpkit.plans.library_costs import all_to_all_seconds
from dpkit.sim.hardware import Cluster

NUM_BYTES = 2  # of a value


def check_groups(num_experts: int, layout: Layout) -> None:
    """Refuse groups that experts or devices do not fill.

    Args:
        num_experts: Those of a layer; 0: it has none.
        layout: How the step is cut.

    Raises:
        ValueError: they do not.
    """
    e, u = layout.expert, layout.expert_tensor
    if not num_experts:
        if (e, u) != (1, 1):
            raise ValueError(
                f"the network has no experts to divide (expert: {e}, "
                f"expert_tensor: {u})"
            )
        return
    stage = layout.num_copies * layout.tensor
    can = u in (1, layout.tensor) and e > 0
    if not can or num_experts % e or stage % (e * u):
        raise ValueError(
            "experts and devices of a stage must fill the groups, in which "
            "one device has an expert, or a tensor group (experts: "
            f"{num_experts}, devices of a stage: {stage}, tensor: "
            f"{layout.tensor}, expert: {e}, expert_tensor: {u})"
        )


def check_counted(model: Transformer, layout: Layout) -> None:
    """Refuse what is not counted for layers of experts.

    Raises:
        ValueError: experts in plain modules, or recomputed selectively; or a
            tensor group whose devices have the same tokens.
    """
    if not model.experts:
        return
    if layout.recompute == "selective" or model.plain:
        raise ValueError(
            "layers of experts are counted in fused kernels, and where "
            "backward computes nothing or whole blocks again (plain: "
            f"{model.plain}, recompute: {layout.recompute})"
        )
    if layout.tensor > 1 and not layout.sequence_parallel:
        raise ValueError(
            "the devices of a tensor group must have different tokens, which "
            "they send to experts (sequence_parallel: "
            f"{layout.sequence_parallel})"
        )


def own_parameters(model: Transformer, layout: Layout) -> float:
    """Return the parameters of experts that a device has of a layer."""
    parts = layout.expert * layout.expert_tensor
    return model.experts * model.mlp_parameters / parts


def row_bytes(model: Transformer, layout: Layout, tokens: float) -> float:
    """Return the bytes of the rows that a device sends to experts, once.

    Args:
        model: The network.
        layout: How the step is cut.
        tokens: Those of the device and its tensor group.
    """
    return NUM_BYTES * model.choices * tokens * model.hidden / layout.tensor


def num_exchanges(layout: Layout) -> int:
    """Return how often rows go to other devices, for a layer."""
    return 6 if layout.recompute == "full" else 4


def num_messages(model: Transformer, layout: Layout) -> int:
    """Return how many collectives send a layer's rows."""
    if not model.experts:
        return 0
    kinds = (layout.expert > 1) + (layout.expert_tensor > 1)
    return num_exchanges(layout) * kinds


def moved_bytes(model: Transformer, layout: Layout) -> float:
    """Return the bytes that kernels move to order rows, for a token.

    It is what forward moves, of a token of the device's tensor group.
    """
    if not model.experts:
        return 0.0
    several = model.experts > layout.expert
    by_expert = 4 * layout.expert_tensor if several else 0
    k = model.choices
    moved = (2 * k + by_expert * k + k + 1) * model.hidden
    return NUM_BYTES * moved / layout.tensor


def gathered_bytes(model: Transformer, layout: Layout) -> float:
    """Return the bytes kept of rows of others, for a token.

    Those that share an expert keep the rows that they have gathered.
    """
    if not model.experts:
        return 0.0
    more = layout.expert_tensor - 1
    return NUM_BYTES * more * model.choices * model.hidden / layout.tensor


def exchange_seconds(
    layout: Layout, num_bytes: float, cluster: Cluster
) -> float:
    """Return the seconds of a layer's rows on their way, by micro-batch.

    Args:
        layout: How the step is cut.
        num_bytes: Those of the rows that a device sends once.
        cluster: The devices.

    Example:
        The rows of 8x22B above, in the node and over eight nodes:

        >>> from dpkit.sim.hardware.clusters import cluster
        >>> many = cluster(64, "h100", "nvlink4", ranks_per_node=8,
        ...                network="infiniband400")
        >>> for layout in Layout(4, 2, expert=8), Layout(32, 2, expert=64):
        ...     print(f"{1e3 * exchange_seconds(layout, 50e6, many):.1f} ms")
        0.4 ms
        3.8 ms
    """
    e, u = layout.expert, layout.expert_tensor
    seconds = all_to_all_seconds(p=e, stride=u, n=num_bytes, cluster=cluster)
    # What is gathered one way is scattered the other: each time one of them.
    seconds += even_seconds(
        "allgather", p=u, stride=1, n=u * num_bytes, cluster=cluster
    )
    return num_exchanges(layout) * seconds
