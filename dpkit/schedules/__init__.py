"""Schedules of pipelines as lists of actions, before anything runs.

``actions`` -- what a stage can do: begin here;
``named`` -- who does what, in which order: "gpipe", "1f1b", …;
``walk`` -- in which order its devices do that, and when;
``check`` -- refuses a wrong schedule, and says why;
``replay`` -- the time that a schedule takes;
``bubble`` -- the same in closed form;
``charts`` -- a schedule as text;
``balance`` -- layers cut into stages of equal cost.

A new schedule is a function in ``named``. Enter it in ``NAMED`` there, and
its formulas in ``FORMULAS`` (``bubble``). Then
``tests/kit/test_complete_tables.py`` names the lists that still lack it, and
``tests/book/test_explore.py`` the live figure. One with several stages on a
device needs its own lines in ``by_name``, as "interleaved" has them, and its
name in ``SCHEDULE_NAMES``. One without a formula for its hops is named in
``tests/kit/test_replay.py``. Its function is listed in ``__all__`` here and in
``book/api.md``: no test asks for that.
"""

from dpkit.schedules.actions import (
    BACKWARD,
    FORWARD,
    INPUT_GRADIENTS,
    WEIGHT_GRADIENTS,
    Action,
    Schedule,
    most_in_flight,
    owners,
    parse,
)
from dpkit.schedules.bubble import (
    hops_waited,
    idle_of_ideal,
    idle_of_total,
    in_flight,
    makespan,
)
from dpkit.schedules.charts import IDLE, chart, check_chart
from dpkit.schedules.named import (
    NAMED,
    by_name,
    gpipe,
    interleaved,
    naive,
    one_f_one_b,
    zero_bubble_h1,
)
from dpkit.schedules.replay import Seconds, times

__all__ = [
    "Action",
    "BACKWARD",
    "FORWARD",
    "IDLE",
    "INPUT_GRADIENTS",
    "NAMED",
    "Schedule",
    "Seconds",
    "WEIGHT_GRADIENTS",
    "by_name",
    "chart",
    "check_chart",
    "gpipe",
    "hops_waited",
    "idle_of_ideal",
    "idle_of_total",
    "in_flight",
    "interleaved",
    "makespan",
    "most_in_flight",
    "naive",
    "one_f_one_b",
    "owners",
    "parse",
    "times",
    "zero_bubble_h1",
]
