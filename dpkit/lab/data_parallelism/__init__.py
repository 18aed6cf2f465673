"""What the chapter ``data-parallelism`` runs and checks.

``resident`` -- an epoch whose images lie on the device;
``check`` -- its exercises.
"""
