"""What the chapter ``large-batches`` runs, draws and checks.

``runs`` -- the experiment, and the time of a step on k devices;
``results`` -- what was recorded, and the law of its steps;
``pictures`` -- its figures; ``check`` -- the checks of its exercises.
"""
