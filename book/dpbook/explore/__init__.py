"""Figures that a reader can change.

``figure`` -- what a live figure is: a function of settings, and a control for
    each setting;
``pipeline`` -- a step of a pipeline. Read this one first;
``collectives`` -- an allreduce;
``step`` -- a data-parallel step, and when two devices are slower than one;
``memory`` -- what fills the memory of a device in a step;
``decision`` -- which way to split is the fastest, on a ``way_map``;
``ring`` -- a ring of attention, step by step;
``planner`` -- a layout of a large run, compared with the best one;
``calculator`` -- whether a run fits, how long it takes, what it costs;
``puzzles`` -- lists to be put into an order;
``curves``, ``stacked`` -- curves over a size, and bars of parts;
``all`` -- all of them by name, and the function that a page calls.
"""
