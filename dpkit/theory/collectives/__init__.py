"""Collective operations as lists of messages, before any tensor moves.

``plans`` -- what a plan is: begin here;
``algorithms`` -- all plans by name, made in
    ``trees``, ``rings``, ``direct`` and ``doubling``;
``check`` -- whether a plan does what it should;
``blocking`` -- in which order ranks send and receive;
``replay`` -- the time that a plan takes on a clock;
``costs`` -- the same in closed form;
``bounds`` -- what no plan can beat;
``choice`` -- which plan is the fastest;
``alpha_beta`` -- the numbers that the closed forms need.
"""
