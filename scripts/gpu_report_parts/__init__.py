"""What `make gpu-report` runs, and how it tells of it.

``plan`` -- the parts, most valuable first, each with a limit of time;
``limited`` -- a program that is ended at its limit, with all it has started;
``records`` -- what is done, so that it is not run again;
``text`` -- the report, of what is recorded so far;
``machine`` -- the part that shows what the machine has;
``comparisons`` -- the chapters' tables of simulated and measured times;
``two_gpus``, ``two_ranks`` -- what only two GPUs can show;
``nets`` -- a small network to compare numbers on;
``stand_in`` -- a rehearsal: the CPU in place of the GPUs.
"""
