"""Collective operations as lists of messages, before any tensor moves.

``plans`` -- what a plan is: begin here;
``algorithms`` -- the plans of star, tree, ring and the others;
``check`` -- whether a plan does what it should;
``blocking`` -- in which order ranks send and receive;
``replay`` -- the time that a plan takes on a clock;
``costs``, ``ports``, ``bounds``, ``choice`` -- the same in closed form;
``alpha_beta`` -- the numbers that the closed forms need.
"""
