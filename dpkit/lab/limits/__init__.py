"""What the page ``limits`` runs.

``comparisons`` -- a prediction beside a measurement, all of one form;
``convolutional`` -- networks of convolutions, simulated as they were measured;
``convolution_rates`` -- rates fitted to them, and what is off;
``predictions`` -- training steps, measured and simulated.
"""
