"""What the chapter ``data-parallelism-concise`` runs, draws and checks.

``recipe_runs`` -- a published recipe, trained many times;
``ddp_program`` -- a program for torchrun;
``pictures`` -- its figures; ``check`` -- the checks of its exercises.
"""
