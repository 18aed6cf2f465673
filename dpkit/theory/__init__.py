"""What can be said without running anything: numbers, lists and pictures.

The standard library alone, so that it runs in a browser too. Rooms:
    ``hardware/`` -- accelerators, links, hosts; what work costs: begin here;
    ``clock/`` -- how time passes on them;
    ``collectives/`` -- who sends what to whom;
    ``pipelines/`` -- who computes what, in which order;
    ``timeline/`` -- what happened, and all drawing.
Beside them ``splits`` compares the ways to split a step, ``overlap`` sends
buckets while backward goes on, ``least_squares`` fits two numbers, and
``units`` writes numbers with their units.
"""
