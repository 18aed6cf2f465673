"""What the page ``plan-a-run`` shows.

``tables`` -- tables of layouts, of misses, and of cuts that were measured;
``clocks`` -- one step by the planner, and on simulated devices.
"""
