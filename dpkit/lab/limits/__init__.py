"""What the page ``limits`` runs.

``comparisons`` -- a prediction beside a measurement, all of one form;
``predictions`` -- training steps, measured and simulated.
"""
