"""What the chapter ``overlap`` runs, draws and checks.

``runs`` -- steps that send gradients at different times;
``programs`` -- what it launches in processes.
"""
