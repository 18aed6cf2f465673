"""Many experts: layers of which each token uses a few, split over ranks.

A layer has E networks of one form, its *experts*. A small *router* scores
them for each token, and the token goes to the best one or two. So the layer
has the parameters of E experts, and a token costs the operations of one or
two. Rank r of k has experts r · E/k up to (r + 1) · E/k, and its own tokens.
Tokens travel to their experts and back, by two all-to-alls. Four experts, a
to d, and three tokens on each of two ranks::

    router        rank 0: 0 to c, 1 to a, 2 to c    rank 1: 3 to a, 4 to d,
                                                    5 to a
    all-to-all    rank 0 (a, b): 1 3 5              rank 1 (c, d): 0 2 4
    experts       a(1) a(3) a(5)                    c(0) c(2) d(4)
    all-to-all    rank 0: 0 1 2                     rank 1: 3 4 5

The ranks are those of a group of ``torch.distributed``: processes, or ranks of
:func:`dpkit.sim.launch`.

``routing`` -- which experts a token goes to, and which have room: begin here;
``rows`` -- rows from rank to rank, as many as each has for the other;
``layer`` -- the experts of a rank, and the way of the tokens through them;
``balance`` -- what keeps experts equally busy.

Source:
    D. Lepikhin et al., GShard, 2020, arXiv:2006.16668; W. Fedus, B. Zoph,
    N. Shazeer, Switch transformers, 2021, arXiv:2101.03961.
"""

from dpkit.experts.balance import balance_loss, moved_bias
from dpkit.experts.layer import expert_parallel, own_experts
from dpkit.experts.routing import Routing, route_tokens
from dpkit.experts.rows import Counts, exchange_rows

__all__ = [
    "Counts",
    "Routing",
    "balance_loss",
    "exchange_rows",
    "expert_parallel",
    "moved_bias",
    "own_experts",
    "route_tokens",
]
