"""What the page ``plan-a-run`` shows.

``tables`` -- tables of layouts, of misses, and of cuts that were measured;
``published`` -- steps of Llama 3, and two readings of their rates;
``clocks`` -- one step by the planner, and on simulated devices.
"""
