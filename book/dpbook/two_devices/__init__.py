"""What the chapter ``two-devices`` runs and draws.

``runs`` -- a step of ResNet-18, and an epoch whose images lie on the device;
``scaling`` -- steps of two engines on k devices, and what limits them;
``pictures`` -- a step, speed-ups, and where the time of a device goes.
"""
