"""What the chapter ``large-batches`` runs, draws and checks.

``runs`` -- the experiment; ``warmup``: how its learning rate begins;
``results`` -- what was recorded, and the law of its steps;
``times`` -- the time of a step on k devices;
``pictures`` -- its figures; ``check`` -- its exercises.
"""
