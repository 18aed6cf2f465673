"""The steps that the map of the ways is compared with.

Each point is a link, the rows of a batch and the width of the layers.
"""

POINTS = [
    ("nvlink2", 4096, 4096),
    ("nvlink2", 256, 4096),
    ("nvlink2", 65536, 1024),
    ("nvlink2", 256, 16384),
    ("nvlink2", 16384, 8192),
    ("pcie3", 4096, 4096),
    ("pcie3", 256, 4096),
    ("pcie3", 65536, 1024),
    ("pcie3", 65536, 4096),
    ("pcie3", 1024, 8192),
    ("pcie3", 256, 16384),
]
