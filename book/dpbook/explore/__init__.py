"""Figures that a reader can change.

``figure`` -- what a live figure is: a function of settings, and a control for
    each setting. Begin here;
``pipeline`` -- a step of a pipeline;
``all`` -- all of them by name, and the function that a page calls.
"""
