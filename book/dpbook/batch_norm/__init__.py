"""What the chapter ``batch-norm`` runs, draws and checks.

``runs`` -- batch norm with few rows; ``programs`` -- what it launches in
processes; ``pictures``.
"""
