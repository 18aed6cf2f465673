"""What can be said without running anything: numbers, lists and pictures.

The standard library alone, so that it runs in a browser too. Rooms:
    ``hardware/`` -- accelerators, links, hosts; what work costs. Begin here.
    ``clock/`` -- how time passes on them.
    ``collectives/`` -- who sends what to whom.
    ``pipelines/`` -- who computes what, in which order.
    ``timeline/`` -- what happened, as a picture and in files.
    ``exercises/`` -- checks of the chapters' exercises, in a page too.
Beside them ``splits`` compares the ways to split a step, ``overlap`` computes
when buckets have been reduced, ``parallel_step`` what a step of data
parallelism takes, from the counts in ``networks``. ``least_squares`` fits two
numbers, ``tables`` makes tables, and ``units`` checks numbers and writes them
with their units.
"""
