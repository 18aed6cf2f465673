"""What the chapter ``network-partitioning`` runs and checks.

``runs`` -- pipelines of a deep network; ``engine`` -- PyTorch's own;
``torchgpipe`` -- times that others published.
"""
