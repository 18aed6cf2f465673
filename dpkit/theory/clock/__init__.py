"""How time passes on a cluster: begin with ``clock``.

``issuers`` issue work; ``resources`` do one thing at a time; ``paths`` are the
ones that a copy occupies; ``recorder`` writes spans (``record``) down.
"""
