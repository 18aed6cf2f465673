"""``python -m dpkit torchrun`` and ``run``: a script, on simulated GPUs.

``launching`` -- begin here: the ranks of a script of torchrun;
``one_process`` -- a script that python starts; ``spawning``, where it starts
processes itself;
``script`` -- run a script in the process of a rank, as torchrun would;
``facts`` -- what is counted in a rank while the script runs;
``watchers`` -- mistakes that a rank can see; ``races``, what nothing orders;
``report`` -- what happened, in lines of text; ``host_share``, how much of it
is waiting for launches; ``report_of_one``, what it says of one process;
``page``, as a page of HTML;
``comparison`` -- ``python -m dpkit check``: one rank against several.

``dpkit.forked`` has the ranks, and ``dpkit.sim.cuda_names`` makes ``cuda``
mean the simulated devices, and shows their time.
"""
