"""Collective operations as lists of messages, before any tensor moves.

``plan`` -- what a plan is: begin here;
``trees``, ``rings``, ``direct``, ``doubling`` -- the algorithms;
``algorithms`` -- their plans by name;
``check`` -- whether a plan does what it should;
``blocking`` -- in which order ranks send and receive;
``replay`` -- the time that a plan takes on a clock;
``costs`` -- the same in closed form;
``library_costs`` -- what a library takes, which runs a ring as one kernel;
``bounds`` -- what no plan can beat;
``choice`` -- which plan is the fastest;
``alpha_beta`` -- the numbers that the closed forms need.

A new algorithm of an allreduce is a function that returns its plan. Enter it
in ``ALLREDUCE`` (``algorithms``), its longest chain of messages in ``CHAINS``
(``costs``), and its name in ``CANDIDATES`` (``choice``). Then
``tests/kit/test_complete_tables.py`` names the lists that still lack it,
``tests/kit/test_plans.py`` asks for its ports and steps, and
``tests/kit/test_collective_costs.py`` for its seconds. If all ranks do the
same in it, enter it in ``ONE_ROLE`` (``dpkit/runs/ranks/alike_checks.py``),
too: no test asks for that.
A new operation is a function in ``dpkit/collectives.py``. If a library does
it in one kernel, it has a row in ``TRIPS`` (``library_costs``), on GPUs one in
``NCCL`` (``dpkit/library.py``). If ranks do it, it is a method of
``RankGroup`` in ``dpkit/runs/ranks/rank_group.py``, with a row in ``SENDERS``
(``sending`` there), and one in ``LEAVERS`` (``one_rank``) for ranks that are
alike.
"""

from dpkit.plans.algorithms import allreduce_plan
from dpkit.plans.alpha_beta import FREE_HOST, ideal_cluster, rates_of
from dpkit.plans.bounds import lower_bounds
from dpkit.plans.check import check_allreduce, check_broadcast
from dpkit.plans.choice import choose
from dpkit.plans.costs import Rates
from dpkit.plans.doubling import halving_doubling, recursive_doubling
from dpkit.plans.library_costs import even_seconds, library_seconds
from dpkit.plans.plan import Chunks, Message, Plan, Step, count, num_elements
from dpkit.plans.replay import replay_plan
from dpkit.plans.rings import hierarchical, ring, ring_allgather
from dpkit.plans.trees import star, tree_broadcast

__all__ = [
    "Chunks",
    "FREE_HOST",
    "Message",
    "Plan",
    "Rates",
    "Step",
    "allreduce_plan",
    "check_allreduce",
    "check_broadcast",
    "choose",
    "count",
    "even_seconds",
    "halving_doubling",
    "hierarchical",
    "ideal_cluster",
    "library_seconds",
    "lower_bounds",
    "num_elements",
    "rates_of",
    "recursive_doubling",
    "replay_plan",
    "ring",
    "ring_allgather",
    "star",
    "tree_broadcast",
]
