"""What the chapter ``devices`` runs, draws and checks.

``pictures`` -- launches, and what they start;
``six_times`` -- six times of a program for GPUs, in plain PyTorch;
``own_gpus`` -- these six times on the GPUs of this machine;
``check`` -- the checks of its exercises.
"""
