"""Collective operations as lists of messages, before any tensor moves.

``plan`` -- what a plan is: begin here;
``trees``, ``rings``, ``direct``, ``doubling`` -- the algorithms;
``algorithms`` -- their plans by name;
``check`` -- whether a plan does what it should;
``blocking`` -- in which order ranks send and receive;
``replay`` -- the time that a plan takes on a clock;
``costs`` -- the same in closed form;
``library`` -- what a library takes, which runs a ring as one kernel;
``bounds`` -- what no plan can beat;
``choice`` -- which plan is the fastest;
``alpha_beta`` -- the numbers that the closed forms need.

A new algorithm of an allreduce is a function that returns its plan. Enter it
in ``ALLREDUCE`` (``algorithms``), its longest chain of messages in ``CHAINS``
(``costs``), and its name in ``CANDIDATES`` (``choice``). Then
``tests/kit/test_complete_tables.py`` names the lists that still lack it.
A new operation is a function in ``dpkit/collectives.py``. If a library does
it in one kernel, it has a row in ``TRIPS`` (``library``); if ranks do it, one
in ``SENDERS`` (``dpkit/runs/ranks/sending.py``).
"""
