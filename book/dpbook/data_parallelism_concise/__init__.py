"""What the chapter ``data-parallelism-concise`` runs, draws and checks.

``scaling`` -- steps of two engines on k devices, and laws of their times;
``recipe_runs`` -- a published recipe, trained many times;
``ddp_program`` -- a program for torchrun.
"""
