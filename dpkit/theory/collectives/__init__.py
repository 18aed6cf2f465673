"""Collective operations as lists of messages, before any tensor moves.

``plans`` -- what a plan is: begin here;
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
"""
