"""Schedules of pipelines as lists of actions, before anything runs.

``actions`` -- what a stage can do: begin here;
``schedules`` -- who does what, in which order;
``walk`` -- in which order its devices do that, and when;
``check`` -- refuses a wrong schedule, and says why;
``replay`` -- the time that a schedule takes;
``bubble`` -- the same in closed form;
``charts`` -- a schedule as text;
``balance`` -- layers cut into stages of equal cost.
"""
