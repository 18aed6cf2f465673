"""What the page ``limits`` runs.

``comparisons`` -- a prediction beside a measurement, all of one form;
``links`` -- cards on PCI Express, copying and reducing;
``predictions`` -- training steps, measured and simulated.
"""
