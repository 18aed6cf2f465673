"""What the chapter ``network-partitioning`` runs and checks.

``runs`` -- pipelines of a deep network; ``engine`` -- PyTorch's own;
``pictures`` -- forward and backward of a trace; ``torchgpipe`` -- times
that others published.
"""
