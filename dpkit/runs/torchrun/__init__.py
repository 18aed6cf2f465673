"""``python -m dpkit torchrun`` and ``run``: a script, on simulated GPUs.

``launching`` -- begin here: the ranks of a script of torchrun;
``one_process`` -- a script that python starts; ``spawning``, where it starts
processes itself; ``script_watch``, whether it waits for nobody;
``script`` -- run a script in the process of a rank, as torchrun would;
``facts`` -- what is counted in a rank while the script runs; ``made_up``, what
it reads on a machine without values; ``held``, what holds memory that is out;
``watchers`` -- mistakes that a rank can see; ``local_rank``, one of them;
``races``, what nothing orders;
``report`` -- what happened, in lines of text; ``host_share``, how much of it
is waiting for launches; ``report_of_one``, what it says of one process;
``html_report``, as a page of HTML, ``section``, a part of both;
what ranks compare: ``replicas``, ``examples``
that they share, lists that they have ``shuffled``, ``new_groups``;
``parameter_names``, what all of these call a parameter;
``failures`` -- how a rank has failed, told once; ``early_end``, by os._exit.

``forked`` has the ranks, and ``cuda_names`` makes ``cuda`` mean the simulated
devices, and shows their time.
"""

from dpkit.sim.places import runs_beneath

runs_beneath(__path__[0])
