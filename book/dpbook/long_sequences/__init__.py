"""What the chapter ``long-sequences`` runs and draws.

``programs`` -- what each rank runs: attention of its part, and a model;
``runs`` -- attention of long sequences, without values, on the clock;
``pictures`` -- a ring, which scores a rank computes, what it does when.
"""
