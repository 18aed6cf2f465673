"""What the chapter ``network-partitioning`` runs and checks.

``runs`` -- pipelines of a deep network; ``engine`` -- PyTorch's own;
``pictures`` -- what a device keeps, schedules, what devices compute;
``torchgpipe`` -- times that others published;
``check`` -- the checks of its exercises.
"""
