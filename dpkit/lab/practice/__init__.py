"""What the chapter ``practice`` runs, draws and checks.

``runs`` -- batch norm with few rows; ``rounding_runs``: the last bit;
``loss_scaling`` -- gradients in half precision;
``programs`` -- what it launches in processes.
"""
