"""What the front page draws.

``pictures`` -- a training step on four devices.
"""
