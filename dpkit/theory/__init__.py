"""What can be said without running anything: numbers, lists and pictures.

The standard library alone, so that it runs in a browser too. Rooms:
    ``hardware/`` -- accelerators, links, hosts; what work costs. Begin here.
    ``clock/`` -- how time passes on them.
    ``collectives/`` -- who sends what to whom.
    ``pipelines/`` -- who computes what, in which order.
    ``timeline/`` -- what happened, as a picture and in files.
Three modules stand outside of rooms: ``least_squares`` fits two numbers,
``tables`` makes tables, and ``units`` checks numbers and writes them with
their units.
"""
