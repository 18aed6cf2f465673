"""What the chapter ``precision`` runs, draws and checks.

``rounding_runs`` -- the last bit; ``loss_scaling`` -- gradients in half
precision; ``pictures``; ``check`` -- the checks of its exercises.
"""
