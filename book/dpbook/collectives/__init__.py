"""What the chapter ``collectives`` runs, draws and checks.

``runs`` -- an allreduce, what it sends and takes;
``pictures`` -- costs: ports, times, who wins where;
``check`` -- the checks of its exercises.
"""
