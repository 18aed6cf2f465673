"""What `make bench` measures, and how it judges it.

``ratios`` -- a ratio, its spread, and whether it reaches its goal;
``rows`` -- the ways of doing one thing, and the ratios between them;
``operations``, ``schedules``, ``collectives``, ``ranks``, ``commands`` -- the
rows;
``commits`` -- the rows that hold this tree against another commit;
``worker`` -- what times the dpkit of one of the two;
``committed`` -- the ratios that were measured last on this CPU.
"""
