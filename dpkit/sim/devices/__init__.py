"""Which devices are simulated, and which one a name means.

``configuration`` -- the hardware, its clock and memory: begin here;
``names`` -- plain "sim", a number, the accelerator;
``random_states`` -- generators of random numbers, which change with a rank.
"""
