"""``python -m dpkit torchrun``: a script, unchanged, on simulated GPUs.

``launching`` -- begin here: the machine, the ranks, the report;
``script`` -- run a script in the process of a rank, as torchrun would;
``stopwatch`` -- the simulated time that a script sees;
``facts`` -- what is counted in a rank while the script runs;
``watchers`` -- mistakes that a rank can see; ``races``, what nothing orders;
``report`` -- what happened, in lines of text; ``page``, as a page of HTML;
``comparison`` -- ``python -m dpkit check``: one rank against several.

``dpkit.forked`` has the ranks, and ``dpkit.sim.cuda_names`` makes ``cuda``
mean the simulated devices.
"""
