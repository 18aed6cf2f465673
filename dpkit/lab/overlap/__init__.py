"""What the chapter ``overlap`` runs, draws and checks.

``runs`` -- steps that send gradients at different times;
``engines`` -- the same step by our engine and by PyTorch's;
``programs`` -- the two engines, for real processes.
"""
