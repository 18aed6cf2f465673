"""What the chapter ``data-parallelism`` runs, draws and checks.

``runs`` -- a step of ResNet-18, and an epoch whose images lie on the device.
"""
